"""Topics with messages whose times are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

from skylog.client import Admin, Producer
from tests.broker.raw import RawClient
from tests.console.conftest import RunningConsole
from tests.faults.test_bad_batches import batch_around, varint

START_MS = 1_700_000_000_000  # of the first message; each comes a second after the one before


@cache
def shared_producer(bootstrap: str) -> Producer:
    """One for all tests: the first message of a producer may take half a second."""
    return Producer(bootstrap, config={"message.max.bytes": 5_000_000})


class Topic:
    """One topic of a test, under its path in the console."""

    def __init__(self, console: RunningConsole, name: str, partitions: int) -> None:
        self.console = console
        self.name = name
        self.path = f"/topics/{name}/messages"
        self.bootstrap = console.broker.bootstrap
        Admin(self.bootstrap).create_topic(name, partitions, configs={"max.message.bytes": "5000000"})
        self._sent = 0

    def send(self, values: Iterable[Any], key: Any = None, partition: int | None = None, headers: Any = None) -> None:
        with shared_producer(self.bootstrap).batch() as producer:
            for value in values:
                when_ms = START_MS + self._sent * 1000
                producer.send(self.name, value, key, partition=partition, headers=headers, timestamp_ms=when_ms)
                self._sent += 1

    def spread(self, count: int, partitions: int) -> None:
        """Produce numbers: two thirds to the first partition, the others round-robin."""
        with shared_producer(self.bootstrap).batch() as producer:
            for number in range(self._sent, self._sent + count):
                where = 0 if number % 3 else number // 3 % partitions
                when_ms = START_MS + number * 1000
                producer.send(self.name, number, str(number % 7), partition=where, timestamp_ms=when_ms)
        self._sent += count

    def send_with_unreadable_header(self, value: bytes) -> None:
        """To partition 0, with a header whose name is not UTF-8, as only a client of its own makes it."""
        name = b"\xff\xfe"
        header = varint(1) + varint(len(name)) + name + varint(1) + b"x"
        body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + header
        with RawClient(int(self.console.broker.bootstrap.rpartition(":")[2])) as client:
            client.produce(self.name, batch_around(varint(len(body)) + body))
        self._sent += 1

    def json(self, rest: str = "") -> Any:
        return self.console.json(f"{self.path}{rest}")

    def values(self, rest: str = "") -> list[Any]:
        return [message["value"] for message in self.json(rest)["messages"]]


@pytest.fixture
def make_topic(console: RunningConsole, topic_name: Callable[[], str]) -> Callable[..., Topic]:
    def make(partitions: int = 1) -> Topic:
        return Topic(console, topic_name(), partitions)

    return make
