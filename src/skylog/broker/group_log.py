"""Stores the records of groups in a partition of `__consumer_offsets`, with the same guarantees as for any topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from skylog.broker.leadership import Leadership, ProducerIdAndEpoch, not_coordinator
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import StoredRecord

BATCH_BYTES: Final = 512 * 1024  # a batch must stay below max.message.bytes of the offsets topic

_FOR_MEMBERS: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class GroupLog:
    """Appends records, and keeps the order in which the changes of a group are applied to memory."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        # The last append of each group that is not applied yet. Each ends after the one before it, so one is enough.
        self._in_flight: dict[str, asyncio.Future[None]] = {}

    async def store(
        self,
        group_id: str,
        records: Sequence[StoredRecord],
        *,
        producer: ProducerIdAndEpoch | None = None,
        appended: Callable[[], None] | None = None,
    ) -> None:
        """Append records of a group and wait until they are committed, and those before them applied.

        So changes are applied in the order of the log, although some wait for the disk and others do not. Records of a
        transaction have a `producer`. `appended` is called when the records are in the log, before the wait.
        """
        waiting = self.append(records, producer)
        if appended is not None:
            appended()
        previous = self._in_flight.get(group_id)
        if waiting is None and previous is None:
            return
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight[group_id] = applied
        try:
            if waiting is not None:
                await waiting
        except KafkaError as error:
            raise self._for_members(error) from error
        finally:
            try:
                if previous is not None and not previous.done():
                    await asyncio.wait((previous,))
            finally:
                if previous is None or previous.done():
                    # The caller applies the change before anything that waits for this future runs.
                    self._applied(group_id, applied)
                else:  # the wait was cancelled, and later appends wait only for this one
                    previous.add_done_callback(lambda _: self._applied(group_id, applied))

    def _applied(self, group_id: str, applied: asyncio.Future[None]) -> None:
        applied.set_result(None)
        if self._in_flight[group_id] is applied:
            del self._in_flight[group_id]

    def has_in_flight(self, group_id: str) -> bool:
        """Whether records of a group are stored that are not applied yet."""
        return group_id in self._in_flight

    async def wait_for_earlier(self, group_id: str) -> None:
        """Wait until the appends that are in flight now are committed and applied, or have failed."""
        if (last := self._in_flight.get(group_id)) is not None:
            await asyncio.wait((last,))

    def check_leadership(self) -> None:
        """Raise NOT_COORDINATOR if the leadership is over."""
        if self._leadership.is_over:
            raise not_coordinator()

    def append(
        self, records: Sequence[StoredRecord], producer: ProducerIdAndEpoch | None = None
    ) -> asyncio.Future[None] | None:
        """Append records. Return None if they are committed, or a future. Only an error of the call is translated."""
        try:
            return self._leadership.append(records, producer)
        except KafkaError as error:
            raise self._for_members(error) from error

    def _for_members(self, error: KafkaError) -> KafkaError:
        """Translate an error of the partition into one that group members handle."""
        if self._leadership.is_over:
            return not_coordinator()
        return KafkaError(_FOR_MEMBERS.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE), error.message)
