"""A well-behaved client of the broker that others abuse: it must notice nothing."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.patience import patience
from tests.present import present

_numbers = itertools.count()


class Neighbour:
    """Produces a message every few milliseconds with librdkafka and reads it back, for as long as the block lasts.

    `check` wants that nothing went wrong since the last time, and that no message took longer than `patience_seconds`
    from its `produce` to its reader. Leaving the block checks that each message was read once, in order.
    """

    def __init__(self, bootstrap: str, patience_seconds: float = 3.0) -> None:
        self._bootstrap = bootstrap
        self._patience_seconds = patience_seconds
        self._topic = f"neighbour-{next(_numbers)}"
        self._stopping = threading.Event()
        self._sent_at: list[float] = []
        self._received: list[int] = []
        self._errors: list[Any] = []
        self._slowest_seconds = 0.0
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait_for_messages(5)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        if kind is None:
            self._complain()
            assert self._received == list(range(len(self._sent_at)))

    def check(self) -> None:
        self.wait_for_messages(5)
        self._complain()

    def _complain(self) -> None:
        errors, self._errors = self._errors, []
        slowest_seconds, self._slowest_seconds = self._slowest_seconds, 0.0
        assert not errors, errors[:5]
        assert slowest_seconds < patience(self._patience_seconds)

    def wait_for_messages(self, count: int) -> None:
        """Wait until that many more messages were delivered."""
        goal = len(self._received) + count
        deadline = time.monotonic() + 30
        while len(self._received) < goal:
            assert time.monotonic() < deadline, f"the neighbour is stuck; errors: {self._errors[:3]}"
            time.sleep(0.01)

    def _note(self, error: Any) -> None:
        self._errors.append(error)

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "error_cb": self._note,
                "broker.address.family": "v4",
            }
        )

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                self._errors.append(error)

        number = 0
        while not self._stopping.is_set():
            self._sent_at.append(time.monotonic())
            # Some are larger than what the broker receives in one piece.
            padding = b"." * (100_000 if number % 10 == 9 else 50)
            producer.produce(self._topic, b"%d " % number + padding, on_delivery=delivered)
            producer.poll(0.01)
            number += 1
        if producer.flush(30):
            self._errors.append("not everything was delivered")

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": True,
                "error_cb": self._note,
                "broker.address.family": "v4",
            }
        )
        consumer.list_topics(self._topic, timeout=20)
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        deadline = None
        while deadline is None or (len(self._received) < len(self._sent_at) and time.monotonic() < deadline):
            if deadline is None and self._stopping.is_set():
                deadline = time.monotonic() + 30
            message = consumer.poll(0.05)
            if message is None:
                continue
            if message.error():
                self._errors.append(message.error())
                continue
            number = int(present(message.value()).split()[0])
            self._received.append(number)
            self._slowest_seconds = max(self._slowest_seconds, time.monotonic() - self._sent_at[number])
        consumer.close()
