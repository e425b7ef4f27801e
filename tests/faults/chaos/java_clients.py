"""Apache Kafka's Java clients in a run: an idempotent producer, and a reader of all partitions."""

from __future__ import annotations

import base64
import os
import threading
from pathlib import Path
from typing import Any

from skylog.simulation.history import Assignment, History, Message, Value
from tests.clients.peers.driven import Driver
from tests.clients.peers.installation import JAVA_VERSIONS, NotAvailable, java_classpath
from tests.clients.peers.peer import Refused

FIRST_PRODUCER = 50
_SOURCES = Path(__file__).parents[2] / "clients" / "java"
_FLAGS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class NoJavaClientsError(Exception):
    """They cannot be had here, and why."""


class JavaClients(threading.Thread):
    """Each round sends some messages to a partition and reads what is new in another. Every driver has a new number.

    After an error the outcome of what was sent is unknown, and a later producer must not send it again.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, history: History) -> None:
        super().__init__(name="java clients", daemon=True)
        try:
            classpath = java_classpath(_SOURCES, "kafka-clients", JAVA_VERSIONS[-1])
        except NotAvailable as reason:
            raise NoJavaClientsError(f"Java clients: {reason}") from reason
        self._command = ["java", *_FLAGS, "-cp", classpath, "Driver", bootstrap]
        self._topic, self._partitions, self._history = topic, partitions, history
        self._number = FIRST_PRODUCER
        self._next = 0
        self._driver: Driver | None = None
        self._readers: dict[int, tuple[int, Assignment]] = {}
        self._stopping = threading.Event()
        self.reads = History()
        """What its readers saw. They are not members of the group."""
        self.errors: list[str] = []
        self.sent = self.read = 0

    @property
    def description(self) -> str:
        version = JAVA_VERSIONS[-1]
        return f"kafka-clients {version}: {self.sent} sent, {self.read} read, {len(self.errors)} errors"

    def run(self) -> None:
        partition = 0
        while not self._stopping.is_set():
            partition = (partition + 1) % self._partitions
            try:
                driver = self._connect()
                self._produce(driver, partition)
                self._take(driver, (partition + 1) % self._partitions, 20)
            except (AssertionError, Refused) as error:
                self.errors.append(str(error)[:300])
                self._stop_driver()

    def stop(self) -> None:
        """Send nothing more. What was sent is stored then, or never will be."""
        self._stopping.set()
        self.join()
        self._stop_driver()

    def finish(self, stored: dict[int, list[Value]]) -> None:
        """Read everything that is stored once more."""
        driver = self._connect()
        for partition, log in stored.items():
            for start in range(0, len(log), 1000):
                self._take(driver, partition, min(1000, len(log) - start))
        self._stop_driver()

    def _connect(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._command, os.environ)
            self._number, self._next = self._number + 1, 0
        return self._driver

    def _stop_driver(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None
            self._readers.clear()

    def _produce(self, driver: Driver, partition: int) -> None:
        values = [Value(self._number, self._next + index) for index in range(5)]
        self._next += len(values)
        records = [_record(value) for value in values]
        settings = {"codec": "none", "acks": "all", "idempotent": True}
        sent = driver.ask("produce", topic=self._topic, partition=partition, records=records, **settings)
        for value, (offset, _) in zip(values, sent, strict=True):
            self._history.acknowledged.append(Message(partition, int(offset), value))
        self.sent += len(sent)

    def _take(self, driver: Driver, partition: int, count: int) -> None:
        if partition not in self._readers:
            number = driver.ask("open", topic=self._topic, partition=partition, start={"kind": "beginning"})
            self._readers[partition] = number, self.reads.assign("java reader", partition)
        number, assignment = self._readers[partition]
        for row in driver.ask("take", reader=number, count=count):
            value = Value.decode(base64.b64decode(row["value"]))
            assignment.messages.append(Message(partition, int(row["offset"]), value))
            self.read += 1


def _record(value: Value) -> dict[str, Any]:
    return {"key": None, "value": base64.b64encode(value.encode()).decode(), "headers": [], "timestamp": None}
