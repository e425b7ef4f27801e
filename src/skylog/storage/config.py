"""The settings of one log: Kafka's topic configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from skylog.config import UpdateMode, setting

DAY_MS: Final = 24 * 60 * 60 * 1000
FOREVER: Final = (1 << 63) - 1
NO_REPLICAS: Final[tuple[str, ...]] = ()

_FORMAT_VERSION = re.compile(r"0\.(8|9|10|11)(\.\d)?(\.\d)?(-IV\d)?|(1\.[01]|2\.[0-8]|3\.\d)(-IV\d)?", re.ASCII)
_REPLICA = re.compile(r"\d+:\d+", re.ASCII)


def _gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "expected -1 or a number from 1 to 9"


def _format_version(version: str) -> str | None:
    return None if _FORMAT_VERSION.fullmatch(version) else "expected a version of Kafka up to 3.9"


def _replicas(items: tuple[str, ...]) -> str | None:
    if items == ("*",) or all(_REPLICA.fullmatch(item) for item in items):
        return None
    return "expected * or a list of partition:broker"


def _no_remote_storage(enabled: bool) -> str | None:
    return "this broker has no remote storage" if enabled else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The configuration of a topic's logs. Each field is a key of Kafka's topic configuration."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        ("delete",),
        "delete: delete old segments. compact: keep the last value of each key. delete,compact: both. Empty: keep all.",
        choices=("delete", "compact"),
        broker_key="log.cleanup.policy",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "Compression level for compression.type=gzip: 1 to 9, or -1 for the codec's default.",
        kind="int",
        check=_gzip_level,
        broker_key="compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        "Compression level for compression.type=lz4: 1 to 17.",
        kind="int",
        minimum=1,
        maximum=17,
        broker_key="compression.lz4.level",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "producer: store batches with the producer's codec. Any other value: recompress batches to this codec.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        broker_key="compression.type",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        "Compression level for compression.type=zstd: up to 22; levels above 9 have the effect of 9.",
        kind="int",
        minimum=-131_072,
        maximum=22,
        broker_key="compression.zstd.level",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        DAY_MS,
        "How long a compacted log keeps tombstones, so that readers can see the deletion.",
        minimum=0,
        broker_key="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        60_000,
        "No effect: files are removed immediately; readers that are using them can finish.",
        minimum=0,
        broker_key="log.segment.delete.delay.ms",
    )
    flush_messages: int = setting(
        "flush.messages",
        FOREVER,
        "Fsync when this many messages are unflushed, before acknowledging them; 1: before every acknowledgement.",
        minimum=1,
        broker_key="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        "flush.ms",
        FOREVER,
        "Fsync at most this long after an append.",
        minimum=0,
        broker_key="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        NO_REPLICAS,
        "The replicas that their brokers may copy only at follower.replication.throttled.rate until they are in sync: "
        "* or a list of partition:broker.",
        check=_replicas,
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        4096,
        "Add an index entry after at least this many bytes of log.",
        kind="int",
        minimum=0,
        broker_key="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        NO_REPLICAS,
        "The leaders that may send only at leader.replication.throttled.rate to replicas that are not in sync: * or a "
        "list of partition:broker.",
        check=_replicas,
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        -2,
        "No effect: there is no remote storage; all segments are local.",
        minimum=-2,
        broker_key="log.local.retention.bytes",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        -2,
        "No effect: there is no remote storage; all segments are local.",
        minimum=-2,
        broker_key="log.local.retention.ms",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        FOREVER,
        "The longest a message may stay uncompacted, regardless of min.cleanable.dirty.ratio.",
        minimum=1,
        broker_key="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        1_048_588,
        "The largest batch that a producer may send, after compression.",
        kind="int",
        minimum=0,
        broker_key="message.max.bytes",
    )
    message_downconversion_enable: bool = setting(
        "message.downconversion.enable",
        True,
        "No effect: batches are always sent in the format in which they are stored.",
        broker_key="log.message.downconversion.enable",
    )
    message_format_version: str = setting(
        "message.format.version",
        "3.0-IV1",
        "No effect: messages are always stored in record format v2.",
        check=_format_version,
        broker_key="log.message.format.version",
        update_mode=UpdateMode.READ_ONLY,
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        FOREVER,
        "Reject messages whose timestamp is more than this ahead of the broker's clock (CreateTime only).",
        minimum=0,
        broker_key="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        FOREVER,
        "Reject messages whose timestamp is more than this behind the broker's clock (CreateTime only).",
        minimum=0,
        broker_key="log.message.timestamp.before.max.ms",
    )
    message_timestamp_difference_max_ms: int = setting(
        "message.timestamp.difference.max.ms",
        FOREVER,
        "Default for message.timestamp.before.max.ms and message.timestamp.after.max.ms if they are not set.",
        minimum=0,
        broker_key="log.message.timestamp.difference.max.ms",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        "The timestamp to store: the producer's (CreateTime) or the broker's at the append (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"),
        broker_key="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        0.5,
        "Compact when this fraction of the closed segments, by size, has not been compacted yet.",
        minimum=0,
        maximum=1,
        broker_key="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        0,
        "The shortest time before a message may be compacted.",
        minimum=0,
        broker_key="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        "The number of in-sync replicas that acks=all requires. While fewer are in sync, nothing is committed, and "
        "consumers see no new messages.",
        kind="int",
        minimum=1,
        broker_key="min.insync.replicas",
    )
    preallocate: bool = setting(
        "preallocate", False, "No effect: segment files grow as they are written.", broker_key="log.preallocate"
    )
    remote_log_copy_disable: bool = setting("remote.log.copy.disable", False, "No effect: there is no remote storage.")
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable", False, "No effect: there is no remote storage."
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable", False, "true is rejected: there is no remote storage.", check=_no_remote_storage
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        "Delete the oldest segments of a partition that is larger than this; -1: no limit.",
        broker_key="log.retention.bytes",
    )
    retention_ms: int = setting(
        "retention.ms",
        7 * DAY_MS,
        "Delete segments whose newest message is older than this; -1: no limit.",
        minimum=-1,
        broker_key="log.retention.ms",
    )
    segment_bytes: int = setting(
        "segment.bytes",
        1 << 30,
        "Start a new segment before the current one exceeds this size.",
        kind="int",
        minimum=14,
        broker_key="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        10 * 1024 * 1024,
        "Start a new segment when an index of the current one reaches this size.",
        kind="int",
        minimum=16,
        broker_key="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        0,
        "Subtract a random time up to this from segment.ms, so that logs do not all start new segments at once.",
        minimum=0,
        broker_key="log.roll.jitter.ms",
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * DAY_MS,
        "Start a new segment when the current one is this old, even if it is not full.",
        minimum=1,
        broker_key="log.roll.ms",
    )

    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        "true: if no replica in sync is live, elect any live one, which loses the messages that it does not have.",
        broker_key="unclean.leader.election.enable",
    )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def timestamp_before_max_ms(self) -> int:
        """The limit for timestamps in the past. The older key applies if the newer one is not set."""
        bound = self.message_timestamp_before_max_ms
        return bound if bound != FOREVER else self.message_timestamp_difference_max_ms

    @property
    def timestamp_after_max_ms(self) -> int:
        bound = self.message_timestamp_after_max_ms
        return bound if bound != FOREVER else self.message_timestamp_difference_max_ms

    @property
    def compression_level(self) -> int | None:
        """The level of `compression_type`; None for a codec without levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    def conflict(self) -> str | None:
        """Return why these values contradict each other; None if they do not."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            return (
                f"min.compaction.lag.ms={self.min_compaction_lag_ms} is larger than "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )
        return None
