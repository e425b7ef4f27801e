"""The log of a capture: its topics, and transactions with the records and the position that covers them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from skylog.capture.envelope import Record
from skylog.capture.position import Position
from skylog.capture.table import CaptureError
from skylog.client import Admin, Connection, Producer
from skylog.client.errors import TopicNotFoundError, TransactionAbortedError
from skylog.client.partition_reader import PartitionReader, read_last
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.tracing import HeaderPairs

POSITIONS: Final = "_skylog_capture."
"""Before the prefix: the topic of positions of a capture."""

TRANSACTION_TIMEOUT_S: Final = 180
CREATED_S: Final = 10.0
_NO_HEADERS: Final[HeaderPairs] = []  # not even those of a trace
TOO_LARGE: Final = "too large"
_STATE_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "segment.ms": str(3_600_000)}
_TOPIC_CONFIGS: Final = {"cleanup.policy": "compact", "max.message.bytes": str(16 << 20)}
_SETTINGS: Final[dict[str, Any]] = {
    "linger.ms": 5,
    "allow.auto.create.topics": False,  # one that is deleted must not come back, empty and with other settings
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_S * 1000,
    "message.timeout.ms": 120_000,
    "message.max.bytes": 64 << 20,  # the topic's own limit counts
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 64 << 10,
}


def positions_topic(prefix: str) -> str:
    return f"{POSITIONS}{prefix}"


def drop_positions(bootstrap: str | None, prefix: str) -> bool:
    """Delete the topic of positions. Return whether there was one."""
    try:
        Admin(bootstrap).delete_topics([positions_topic(prefix)])
    except TopicNotFoundError:
        return False
    return True


class _AbortedError(Exception):
    """Ends the block of a transaction that is to be aborted."""


class Sink:
    """Writes to the log. Opening it fences another capture with the same prefix."""

    def __init__(self, bootstrap: str | None, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._positions = positions_topic(prefix)
        self._connection = Connection(bootstrap)
        self._admin = Admin(self._connection)
        self._producer = Producer(bootstrap, transactional_id=f"skylog-capture-{prefix}", config=_SETTINGS)
        self._transaction: AbstractContextManager[Producer] | None = None
        self._began_s = 0.0
        self.records = 0  # in the open transaction

    def prepare(self, topics: Iterable[str], partitions: int, configs: Mapping[str, str]) -> None:
        """Create the topics that do not exist."""
        known = {topic.name for topic in self._admin.list_topics()}
        self._create(known, self._positions, 1, _STATE_CONFIGS)
        for topic in topics:
            self._create(known, topic, partitions, {**_TOPIC_CONFIGS, **configs})

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the ids of topics, without those that do not exist. Raises SkylogError."""
        return self._admin.topic_ids(topics, CREATED_S / 2)

    def new_topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Like `topic_ids`, for topics that exist, but may not be known to every broker yet."""
        deadline = time.monotonic() + CREATED_S
        while len(found := self._admin.topic_ids(topics)) < len(topics):
            if time.monotonic() > deadline:
                missing = ", ".join(topic for topic in topics if topic not in found)
                raise SkylogError(f"the cluster does not know the topics {missing}")
            time.sleep(CREATED_S / 100)
        return found

    def position(self) -> Position | None:
        """Return the position, None if nothing was captured yet. Fences the capture before this one first."""
        with self._producer.transaction():
            pass  # registers the producer: now nobody else changes the position
        place = TopicPartition(self._positions, 0)
        found = read_last(self._connection, self._admin.offset_ranges([place]), 1)
        return Position.decode(found[-1].value or b"") if found else None

    def live_keys(self, topic: str, while_reading: Callable[[], None]) -> Iterator[bytes]:
        """Yield the keys that have a row in a topic. The keys of one partition at a time are in memory."""
        for place in self._admin.describe_topic(topic).topic_partitions:
            ranges = self._admin.offset_ranges([place])
            live: dict[bytes, None] = {}
            reader = PartitionReader(self._connection, {place: ranges[place].start_offset})
            try:
                for messages in reader.read_to_end(ranges):
                    while_reading()
                    for message in messages:
                        if message.key is not None and message.value is not None:
                            live[message.key] = None
                        elif message.key is not None:
                            live.pop(message.key, None)
            finally:
                reader.close()
            yield from live

    @property
    def open_s(self) -> float:
        """How long the transaction has been open."""
        return 0.0 if self._transaction is None else time.monotonic() - self._began_s

    def send(self, records: list[Record]) -> None:
        """Add records to the transaction, which begins with the first ones."""
        if not records:
            return
        self._begin()
        offer, send = self._producer.offer, self._producer.send
        for topic, key, value in records:
            if value is None or not offer(topic, value, key, 0, _NO_HEADERS):
                send(topic, value, key)  # waits for room in the queue
        self.records += len(records)
        records.clear()

    def commit(self, position: Position) -> None:
        """Commit the records and the position that covers them."""
        self._begin()
        assert self._transaction is not None
        self._producer.send(self._positions, position.encode(), self._prefix.encode(), partition=0)
        transaction, self._transaction = self._transaction, None
        self.records = 0
        try:
            transaction.__exit__(None, None, None)
        except TransactionAbortedError as error:
            if TOO_LARGE in str(error):
                raise CaptureError(f"{error}; raise max.message.bytes of the topic: skylog topics alter") from error
            raise

    def abort(self) -> None:
        """Abort the transaction, if one is open."""
        transaction, self._transaction = self._transaction, None
        self.records = 0
        if transaction is not None:
            with suppress(_AbortedError):
                transaction.__exit__(_AbortedError, _AbortedError(), None)

    def close(self) -> None:
        """Close. An open transaction is aborted by the next capture, or by the broker."""
        self._producer.close(0.0)

    def _begin(self) -> None:
        if self._transaction is None:
            transaction = self._producer.transaction()
            transaction.__enter__()
            self._transaction = transaction
            self._began_s = time.monotonic()

    def _create(self, known: set[str], topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        if topic in known:
            return
        try:
            self._admin.create_topic(topic, partitions, configs=configs)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
