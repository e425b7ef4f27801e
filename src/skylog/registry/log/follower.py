"""Follows the topic: reads it from its start, in a thread, and passes its records to the event loop.

`position` is the offset of the next record that the state does not have. All methods are called on the event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from skylog.client import Connection
from skylog.limited_logger import LimitedLogger
from skylog.registry.records import Record

logger = logging.getLogger(__name__)

POLL_S: Final = 0.5
BATCH: Final = 1000
KEPT: Final = 1000
_END_OFFSET_S: Final = 5.0  # a registry that stops waits for this request
"""The number of records that are remembered, to find out whether one was written."""
_SETTINGS: Final[dict[str, Any]] = {
    "group.id": "skylog-registry-reader",  # required by the library, never used
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 500,
    "fetch.queue.backoff.ms": 10,
}


class Follower:
    """Calls `on_record` with each committed record in order, and `on_reset` before it begins again from the start.

    The topic begins again if it was deleted and created again.
    """

    def __init__(
        self, connection: Connection, topic: str, on_record: Callable[[Record], None], on_reset: Callable[[], None]
    ) -> None:
        self.position = 0
        self._partition = LibraryPartition(topic, 0, OFFSET_BEGINNING)
        self._connection = connection
        self._consumer: Consumer = connection.consumer(_SETTINGS)
        self._admin: AdminClient | None = None
        self._on_record, self._on_reset = on_record, on_reset
        self._recent: deque[tuple[int, Record]] = deque(maxlen=KEPT)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._limited = LimitedLogger(logger)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-follower", daemon=True)
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._consumer.assign([self._partition])
        self._thread.start()

    async def close(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._consumer.close)

    async def reach(self, offset: int) -> None:
        """Wait until everything before the offset is part of the state."""
        if self.position < offset:
            future: asyncio.Future[None] = self._loop.create_future()
            heapq.heappush(self._waiting, (offset, next(self._numbers), future))
            await future

    async def reach_end(self, timeout_s: float) -> None:
        """Wait until everything that is committed now is part of the state. Raises KafkaException, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self.reach(await asyncio.to_thread(self._end_offset, min(timeout_s, _END_OFFSET_S)))

    def has(self, records: Sequence[Record], since: int) -> bool:
        """Whether these records were read, in this order, at or after an offset that was the position recently."""
        found = iter([record for offset, record in self._recent if offset >= since])
        return all(record in found for record in records)

    def _end_offset(self, timeout_s: float) -> int:
        """Return the end of what is committed. By another client: the consumer belongs to the thread that polls."""
        if self._admin is None:
            self._admin = self._connection.admin_client()
        partition = LibraryPartition(self._partition.topic, 0)
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        futures = self._admin.list_offsets(
            {partition: latest}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s
        )
        return int(futures[partition].result(timeout_s).offset)

    # -- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            first = self._consumer.poll(POLL_S)
            if first is None:
                continue
            records: list[tuple[int, Record]] = []
            position = None
            messages: tuple[Any, ...] = (first, *self._consumer.consume(BATCH, timeout=0))
            for message in messages:
                error = message.error()
                if error is None:
                    offset: int = message.offset()
                    records.append((offset, Record(message.key() or b"", message.value())))
                    position = offset + 1
                elif error.code() == LibraryError._PARTITION_EOF:
                    position = message.offset()  # behind the marks of transactions, which are no records
                else:
                    self._note_error(error)
            if position is not None:
                self._call(self._take, records, position)

    def _note_error(self, error: LibraryError) -> None:
        self._limited.warning("cannot read topic '%s': %s", self._partition.topic, error.str())
        if error.code() == LibraryError._AUTO_OFFSET_RESET:
            self._call(self._reset)
            try:
                self._consumer.assign([self._partition])
            except KafkaException as failure:
                self._limited.error("cannot read topic '%s' again: %s", self._partition.topic, failure)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: the process ends
            self._stopping.set()

    # -- the event loop

    def _take(self, records: list[tuple[int, Record]], position: int) -> None:
        for offset, record in records:
            self._on_record(record)
            self._recent.append((offset, record))
        self.position = max(self.position, position)
        while self._waiting and self._waiting[0][0] <= self.position:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    def _reset(self) -> None:
        self.position = 0
        self._recent.clear()
        self._on_reset()
