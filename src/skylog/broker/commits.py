"""When an append is committed: on disk as the topic's flush policy demands, and replicated as `acks` demands.

Producers, coordinators, the audit and the metrics topic append to a partition and wait here, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from skylog.broker.deadlines import Deadlines
from skylog.broker.flusher import Done, Flusher
from skylog.broker.partition import ALL, Partition
from skylog.errors import ErrorCode, KafkaError
from skylog.storage import AppendResult

Append = tuple[Partition, AppendResult]
Settled = Callable[[list[tuple[Partition, KafkaError]]], None]
"""Called when all appends of a request are committed or have failed, with the errors."""


class Commits:
    """Waits until appends are committed. Lives on the event loop's thread."""

    def __init__(self, flusher: Flusher) -> None:
        self._flusher = flusher
        self.deadlines = Deadlines()

    def is_committed(self, partition: Partition, appended: AppendResult, acks: int) -> bool:
        """Whether an append may be acknowledged at once. So may a duplicate, if the original is committed."""
        return not appended.must_flush and (acks != ALL or appended.end_offset <= partition.high_watermark)

    def when_committed(self, partition: Partition, appended: AppendResult, acks: int, done: Done) -> None:
        """Call `done` when an append may be acknowledged, or with the error that prevents it.

        If this broker has stopped leading since the append, that may be cut off. Then its offset, which the high
        watermark reaches later, is that of another record.
        """

        def flushed(error: KafkaError | None) -> None:
            if error is not None or acks != ALL:
                done(error)
            elif partition.is_leader and partition.leader_epoch == appended.leader_epoch:
                partition.when_replicated(appended.end_offset, done)
            else:
                done(partition.not_leader())

        if appended.must_flush:
            self._flusher.flush(partition.log, flushed)
        else:
            flushed(None)

    def when_all_committed(self, appends: Sequence[Append], acks: int, timeout_ms: int, settled: Settled) -> None:
        """Call `settled` when all appends of a request may be acknowledged, have failed or are late."""
        request = _UncommittedRequest(appends, settled)
        for number, (partition, appended) in enumerate(appends):
            self.when_committed(partition, appended, acks, partial(request.settle, number))
        if request.is_waiting and acks == ALL:
            self.deadlines.add(request, timeout_ms)
            request.on_settled = partial(self.deadlines.remove, request, timeout_ms)

    def committed(self, partition: Partition, appended: AppendResult, acks: int = ALL) -> asyncio.Future[None] | None:
        """Return a future that is done when an append is committed, or None if it is committed already.

        The future raises KafkaError.
        """
        if self.is_committed(partition, appended, acks):
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: KafkaError | None) -> None:
            if not future.done():
                future.set_exception(error) if error else future.set_result(None)

        self.when_committed(partition, appended, acks, done)
        return future

    def append_own(self, partition: Partition, batch: memoryview, now_ms: int) -> asyncio.Future[None] | None:
        """Append a batch made by the broker, like a producer with acks=all. Raises KafkaError."""
        return self.committed(partition, partition.append_own(batch, now_ms))


class _UncommittedRequest:
    """The appends of a request that are not committed yet."""

    __slots__ = ("_errors", "_settled", "_waiting", "on_settled")

    def __init__(self, appends: Sequence[Append], settled: Settled) -> None:
        self._waiting = dict(enumerate(appends))
        self._errors: list[tuple[Partition, KafkaError]] = []
        self._settled: Settled | None = settled
        self.on_settled: Callable[[], None] | None = None

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def settle(self, number: int, error: KafkaError | None) -> None:
        """Note the outcome of an append, unless it has one: an append that was late is committed later."""
        append = self._waiting.pop(number, None)
        if append is None:
            return
        if error is not None:
            self._errors.append((append[0], error))
        if not self._waiting:
            self._finish()

    def expire(self) -> None:
        """Give up the appends that are not replicated. For the disk alone there is no timeout, as in Kafka."""
        for number, (partition, appended) in list(self._waiting.items()):
            if not partition.is_replicated(appended.end_offset):
                self.settle(number, _timed_out(partition))

    def _finish(self) -> None:
        settled, on_settled, errors = self._settled, self.on_settled, self._errors
        assert settled is not None
        self._settled = self.on_settled = None
        if on_settled is not None:
            on_settled()
        settled(errors)


def _timed_out(partition: Partition) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{partition.name}: the replicas in sync do not have the batch yet")
