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
    return "there is no remote storage on this broker" if enabled else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How a topic's logs are kept. Each field is a key of Kafka's topic configuration."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        ("delete",),
        "delete: drop old segments; compact: keep the last value of each key; both: do both; empty: keep everything.",
        choices=("delete", "compact"),
        broker_key="log.cleanup.policy",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "Level at which the broker recompresses to gzip: 1 to 9; -1 is the codec's own.",
        kind="int",
        check=_gzip_level,
        broker_key="compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        "Level at which the broker recompresses to lz4.",
        kind="int",
        minimum=1,
        maximum=17,
        broker_key="compression.lz4.level",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "producer keeps the codec a batch arrives with; any other value has the broker recompress to it.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        broker_key="compression.type",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        "Level at which the broker recompresses to zstd; levels above 9 compress like 9.",
        kind="int",
        minimum=-131_072,
        maximum=22,
        broker_key="compression.zstd.level",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        DAY_MS,
        "How long a compacted log keeps tombstones, so that readers see the deletion.",
        minimum=0,
        broker_key="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        60_000,
        "No effect: files are removed at once, readers hold them open.",
        minimum=0,
        broker_key="log.segment.delete.delay.ms",
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
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        NO_REPLICAS,
        "No effect: there is no replication to throttle. * or a list of partition:broker.",
        check=_replicas,
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        4096,
        "Bytes of log between two entries of the offset index.",
        kind="int",
        minimum=0,
        broker_key="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        NO_REPLICAS,
        "No effect: there is no replication to throttle. * or a list of partition:broker.",
        check=_replicas,
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        -2,
        "No effect: there is no remote storage, all segments are local.",
        minimum=-2,
        broker_key="log.local.retention.bytes",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        -2,
        "No effect: there is no remote storage, all segments are local.",
        minimum=-2,
        broker_key="log.local.retention.ms",
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
    message_downconversion_enable: bool = setting(
        "message.downconversion.enable",
        True,
        "No effect: batches are served in the format they were stored in.",
        broker_key="log.message.downconversion.enable",
    )
    message_format_version: str = setting(
        "message.format.version",
        "3.0-IV1",
        "No effect: messages are stored in Kafka's format 2.",
        check=_format_version,
        broker_key="log.message.format.version",
        update_mode=UpdateMode.READ_ONLY,
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
    message_timestamp_difference_max_ms: int = setting(
        "message.timestamp.difference.max.ms",
        FOREVER,
        "Stands for message.timestamp.before.max.ms and message.timestamp.after.max.ms where these are not set.",
        minimum=0,
        broker_key="log.message.timestamp.difference.max.ms",
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
    preallocate: bool = setting(
        "preallocate", False, "No effect: segment files grow as they are written.", broker_key="log.preallocate"
    )
    remote_log_copy_disable: bool = setting("remote.log.copy.disable", False, "No effect: there is no remote storage.")
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable", False, "No effect: there is no remote storage."
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable", False, "Refused when true: there is no remote storage.", check=_no_remote_storage
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        "Drop the oldest segments of a partition beyond this size; -1 keeps all.",
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

    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        "No effect: with one replica there is no leader to elect.",
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
        """How far a create time may lie in the past; the older key stands in where the newer one is not set."""
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
        """Why these values cannot stand beside each other."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            return (
                f"min.compaction.lag.ms={self.min_compaction_lag_ms} is larger than "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )
        return None
