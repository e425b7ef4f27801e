"""A partition that this broker leads and mirrors, during one leadership."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from skylog.broker.partition import Partition
from skylog.model import NO_EPOCH, TopicPartition
from skylog.replication.mirror_progress import MirrorProgress


class MirroredPartition:
    """The partition here, the partition of the source, and the progress.

    `is_wanted` tells whether the topic is still being mirrored, and not paused or promoted. A partition that
    `is_adopted` may have records that are not from the source.
    """

    def __init__(
        self,
        partition: Partition,
        source: TopicPartition,
        is_wanted: Callable[[TopicPartition], bool],
        now_s: float,
        *,
        is_adopted: bool = False,
    ) -> None:
        self.partition = partition
        self.source = source
        self.is_adopted = is_adopted
        self.progress = MirrorProgress(partition.log.log_end_offset, now_s)
        self.topic_id: UUID | None = None
        self.source_leader_epoch = NO_EPOCH
        self.not_before_s = 0.0
        self._leader_epoch = partition.leader_epoch
        self._is_wanted = is_wanted
        self._committed_to = 0

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads in the same epoch, and may copy."""
        partition = self.partition
        return partition.is_leader and partition.leader_epoch == self._leader_epoch and self._is_wanted(partition.name)

    @property
    def has_room(self) -> bool:
        """Whether the followers have what was copied before the last response: copying must not outrun them."""
        return self.partition.high_watermark >= self._committed_to

    def copy(self, batches: memoryview, source_epoch: int, now_ms: int) -> None:
        """Append whole batches. Raises like `Partition.append_from_source`."""
        self.progress.copied(self.partition.append_from_source(batches, now_ms), source_epoch)

    def note_response(self) -> None:
        """Called before a response is stored."""
        self._committed_to = self.partition.log.log_end_offset

    def follow_start(self, source_start: int) -> None:
        """Let the log begin where that of the source begins, as far as the records here are committed."""
        start = min(source_start, self.partition.high_watermark)
        if start > self.partition.log.log_start_offset:
            self.partition.delete_records(start)
