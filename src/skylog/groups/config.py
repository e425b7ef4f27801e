"""The settings of group coordination: Kafka's broker keys."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """How groups are coordinated and how long their offsets are kept."""

    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        0,
        "Wait this long for more members when the first one joins an empty group.",
        kind="int",
        minimum=0,
    )
    max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", 1_800_000, "The longest session a member may ask for.", kind="int", minimum=1
    )
    max_size: int = setting(
        "group.max.size", 0x7FFFFFFF, "The largest number of members of a group.", kind="int", minimum=1
    )
    min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", 6000, "The shortest session a member may ask for.", kind="int", minimum=1
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", 4096, "The longest note that may be kept with an offset.", kind="int", minimum=0
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", 600_000, "How often expired offsets are looked for.", minimum=1
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        10_080,
        "Forget the offsets of a group that has been without members this long.",
        kind="int",
        minimum=1,
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", kind="int", minimum=1
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", 104_857_600, "Segment size of __consumer_offsets.", kind="int", minimum=1
    )
