"""One partition that this broker leads: its log, its epoch, and who waits for it to grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from skylog.errors import ErrorCode, KafkaError
from skylog.model import NO_EPOCH, TopicPartition
from skylog.storage import Admitted, AppendResult, FileSlice, Log

GrowthListener = Callable[[int], None]
"""Told how many bytes a partition has grown by."""


class Partition:
    """The leader's view of a partition. Everything up to `high_watermark` may be read.

    With a single replica whatever has been appended is replicated, so the high watermark is the log's end.
    """

    __slots__ = (
        "_first_offset",
        "_waiting",
        "bytes_out",
        "is_gone",
        "leader_epoch",
        "log",
        "name",
        "replica_count",
        "topic_id",
    )

    def __init__(self, name: TopicPartition, topic_id: UUID, leader_epoch: int, log: Log) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.replica_count = 1
        self.is_gone = False
        self.bytes_out = 0  # that fetches were answered with, since the broker was started
        self._first_offset = log.log_end_offset
        self._waiting: set[GrowthListener] = set()

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed reader may see."""
        return self.log.log_end_offset

    @property
    def messages_in(self) -> int:
        """Messages that were appended since the broker was started."""
        return self.log.log_end_offset - self._first_offset

    def append(self, batch: memoryview, now_ms: int, acks: int) -> AppendResult:
        """Append a client's batch and wake those who wait. Raises KafkaError."""
        return self.append_admitted(self.log.admission.admit(batch, now_ms), now_ms, acks)

    def append_own(self, batch: memoryview, now_ms: int) -> AppendResult:
        """Append a batch that the broker has made, as a producer with acks=all does. Raises KafkaError."""
        return self.append_admitted(self.log.admission.admit_own(batch), now_ms, -1)

    def append_admitted(self, admitted: Admitted, now_ms: int, acks: int) -> AppendResult:
        """Append a batch that the log's admission has let in and wake those who wait. Raises KafkaError."""
        if acks == -1 and self.replica_count < self.log.config.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {self.replica_count} replicas in sync, "
                f"min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        result = self.log.append_admitted(admitted, self.leader_epoch, now_ms)
        if self._waiting and not result.is_duplicate:
            grown_bytes = len(admitted[0])
            for listener in tuple(self._waiting):
                listener(grown_bytes)
        return result

    def append_all(self, batches: Sequence[memoryview], now_ms: int, acks: int) -> list[int] | None:
        """Append several batches at once; their base offsets. None, with nothing stored, where `append` is needed."""
        if acks == -1 and self.replica_count < self.log.config.min_insync_replicas:
            return None
        offsets = self.log.append_all(batches, self.leader_epoch, now_ms)
        if offsets is not None and self._waiting:
            grown_bytes = sum(map(len, batches))
            for listener in tuple(self._waiting):
                listener(grown_bytes)
        return offsets

    def read(self, offset: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
        return self.log.read_checked(offset, max_bytes, at_least_one)

    def check_epoch(self, epoch: int) -> None:
        """Raise where a client knows another leader epoch: it must refresh its metadata (KIP-320)."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code, f"{self.name} is in leader epoch {self.leader_epoch}, the client in {epoch}")

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; at the end of the log, of the record that comes next."""
        return self.leader_epoch if offset >= self.log.log_end_offset else self.log.epochs.epoch_of(offset)

    def wait(self, listener: GrowthListener) -> None:
        self._waiting.add(listener)

    def stop_waiting(self, listener: GrowthListener) -> None:
        self._waiting.discard(listener)

    def retire(self) -> None:
        """The partition is going away: whoever waits for it is woken for good."""
        self.is_gone = True
        for listener in tuple(self._waiting):
            listener(1 << 62)
