"""Settings of group coordination, with the names of Kafka's broker keys."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of groups and their committed offsets."""

    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        0,
        "How long to wait for more members after the first one joins an empty group.",
        kind="int",
        minimum=0,
    )
    max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        "Maximum session timeout that a member may request.",
        kind="int",
        minimum=1,
    )
    max_size: int = setting(
        "group.max.size", 0x7FFFFFFF, "Maximum number of members of a group.", kind="int", minimum=1
    )
    min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        6000,
        "Minimum session timeout that a member may request.",
        kind="int",
        minimum=1,
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4096,
        "Maximum length of the metadata string of a committed offset.",
        kind="int",
        minimum=0,
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", 600_000, "How often to delete expired offsets.", minimum=1
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        10_080,
        "Delete the offsets of a group after it has had no members for this long.",
        kind="int",
        minimum=1,
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", 50, "Number of partitions of __consumer_offsets.", kind="int", minimum=1
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        "Replication factor of __consumer_offsets in a cluster. Without a cluster it is 1.",
        kind="int",
        minimum=1,
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", 104_857_600, "The segment.bytes of __consumer_offsets.", kind="int", minimum=1
    )
