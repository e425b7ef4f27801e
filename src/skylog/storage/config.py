"""The settings of one log: Kafka's topic configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from skylog.config import setting

DAY_MS: Final = 24 * 60 * 60 * 1000
FOREVER: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How a topic's logs are kept. Each field is a key of Kafka's topic configuration."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        ("delete",),
        "delete: drop old segments; compact: keep the last value of each key; both: do both.",
        choices=("delete", "compact"),
        broker_key="log.cleanup.policy",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "producer keeps the codec a batch arrives with; any other value has the broker recompress to it.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        broker_key="compression.type",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        DAY_MS,
        "How long a compacted log keeps tombstones, so that readers see the deletion.",
        minimum=0,
        broker_key="log.cleaner.delete.retention.ms",
    )
    flush_messages: int = setting(
        "flush.messages",
        FOREVER,
        "Fsync once this many messages are unflushed, before they are acknowledged; 1 is on every acknowledgement.",
        minimum=1,
        broker_key="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        "flush.ms",
        FOREVER,
        "Fsync at the latest this long after an append.",
        minimum=0,
        broker_key="log.flush.interval.ms",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        4096,
        "Bytes of log between two entries of the offset index.",
        kind="int",
        minimum=0,
        broker_key="log.index.interval.bytes",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        FOREVER,
        "Compact at the latest this long after a message came, whatever the dirty ratio.",
        minimum=1,
        broker_key="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        1_048_588,
        "The largest batch a producer may send.",
        kind="int",
        minimum=0,
        broker_key="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        FOREVER,
        "How far a create time may lie in the broker's future.",
        minimum=0,
        broker_key="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        FOREVER,
        "How far a create time may lie in the broker's past.",
        minimum=0,
        broker_key="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        "Whose time a message carries: its producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        broker_key="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        0.5,
        "Compact when this share of the closed segments has not been cleaned yet.",
        minimum=0,
        maximum=1,
        broker_key="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        0,
        "Leave messages alone for at least this long.",
        minimum=0,
        broker_key="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        "Replicas that must have a message before acks=all is answered.",
        kind="int",
        minimum=1,
        broker_key="min.insync.replicas",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        "Drop the oldest segments of a partition beyond this size; -1 keeps all.",
        minimum=-1,
        broker_key="log.retention.bytes",
    )
    retention_ms: int = setting(
        "retention.ms",
        7 * DAY_MS,
        "Drop segments whose newest message is older than this; -1 keeps all.",
        minimum=-1,
        broker_key="log.retention.ms",
    )
    segment_bytes: int = setting(
        "segment.bytes",
        1 << 30,
        "Roll to a new segment file at this size.",
        kind="int",
        minimum=14,
        broker_key="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        10 * 1024 * 1024,
        "Roll to a new segment file when an index reaches this size.",
        kind="int",
        minimum=16,
        broker_key="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        0,
        "At most this much is taken off segment.ms at random, so that segments do not all roll at once.",
        minimum=0,
        broker_key="log.roll.jitter.ms",
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * DAY_MS,
        "Roll to a new segment file after this time.",
        minimum=1,
        broker_key="log.roll.ms",
    )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
