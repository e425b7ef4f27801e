"""A partition in the fetch session of a follower: where the follower is, and what was sent for it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from skylog.broker.partition import Partition
from skylog.broker.replication.throttles import names_replica
from skylog.errors import ErrorCode, KafkaError
from skylog.model import NO_EPOCH
from skylog.protocol.fetch_hot import PartitionAnswer, PartitionCall, answer_tags
from skylog.storage import FileSlice, LogConfig

if TYPE_CHECKING:
    from skylog.broker.replication.follower_sessions import FollowerSession


class FollowerSlot:
    """A partition in a session: the follower's last row, and what was sent for it.

    After records were sent, or an error, the slot `is_in_flight` until the follower sends its row again. If it asks
    for the same records, it has rejected them: the slot `is_suspect` until they have been checked.
    """

    __slots__ = (
        "_config",
        "_epoch",
        "_is_named",
        "_sent",
        "_session",
        "diverging",
        "error",
        "is_in_flight",
        "is_suspect",
        "partition",
        "row",
        "topic_id",
    )

    row: PartitionCall

    def __init__(self, session: FollowerSession, topic_id: UUID) -> None:
        self._session = session
        self.topic_id = topic_id
        self.partition: Partition | None = None
        self._epoch = NO_EPOCH
        self._sent = (-1, -1)  # high watermark and log start offset
        self._config: LogConfig | None = None  # by which `_is_named` was computed
        self._is_named = False
        self.is_in_flight = False

    def begin(self, row: PartitionCall) -> None:
        """Note the follower's row. In a new epoch it ignores answers to the row before, so nothing counts as sent."""
        if row.leader_epoch != self._epoch:
            self._epoch = row.leader_epoch
            self._sent = (-1, -1)
        had_records = self.is_in_flight and self.error is None and self.diverging is None
        self.is_suspect = had_records and row.offset == self.row.offset
        self.row = row
        self.is_in_flight = False
        self.error: KafkaError | None = None
        self.diverging: tuple[int, int] | None = None

    def attach(self, partition: Partition) -> None:
        """Follow the appends and the high watermark of a partition."""
        if self.partition is not partition:
            self.detach()
            self.partition = partition
            self._sent = (-1, -1)
            partition.wait_for_end(self._grown)
            partition.wait_for_watermark(self._committed)

    def detach(self) -> None:
        if self.partition is not None:
            self.partition.stop_waiting(self._grown)
            self.partition.stop_waiting(self._committed)
            self.partition = None

    def is_throttled(self, leader_id: int, follower_id: int) -> bool:
        """Whether the topic throttles this leader, and the follower is not in sync."""
        assert self.partition is not None
        config, leading = self.partition.log.config, self.partition.leading
        if config is not self._config:
            self._config = config
            self._is_named = names_replica(config.leader_replication_throttled_replicas, self.row.partition, leader_id)
        return self._is_named and leading is not None and follower_id not in leading.in_sync

    def _grown(self, _: int) -> None:
        if not self.is_in_flight:
            self._session.mark(self)

    def _committed(self, _: int) -> None:
        self._session.mark_later(self)

    def failed(self) -> PartitionAnswer:
        """Return the answer with the error of this slot, and the offsets that a follower out of range needs."""
        self.is_in_flight = True
        code = self.error.code if self.error is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code is not ErrorCode.OFFSET_OUT_OF_RANGE or self.partition is None:
            return PartitionAnswer(self.row.partition, code, -1, -1, -1, None, 0)
        log = self.partition.log
        return PartitionAnswer(
            self.row.partition, code, log.high_watermark, log.last_stable_offset, log.log_start_offset, None, 0
        )

    @property
    def has_watermarks(self) -> bool:
        """Whether the follower does not have the present watermarks."""
        if self.partition is None:
            return False
        log = self.partition.log
        return self._sent != (log.high_watermark, log.log_start_offset)

    def answer(
        self, partition: Partition, records: FileSlice | None, needs_records: bool = False
    ) -> PartitionAnswer | None:
        """Return the answer with records, a diverging epoch or new watermarks; None if there are none of these.

        With `needs_records`, watermarks alone are not enough.
        """
        log = partition.log
        length = records.length if records is not None else 0
        state = log.high_watermark, log.log_start_offset
        if not length and self.diverging is None and (needs_records or state == self._sent):
            return None
        self._sent = state
        if length or self.diverging is not None:
            self.is_in_flight = True
        tags = answer_tags(self.diverging) if self.diverging is not None else b"\0"
        return PartitionAnswer(
            self.row.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            records if length else None,
            length,
            tags,
        )
