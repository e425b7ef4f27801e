"""The driver's part of the sink, in the process of the test, which can be killed at any step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skylog.spark.wire import BrokerConnection
from skylog.spark.writing.delivery import deliver_micro_batch
from skylog.spark.writing.publisher import Publisher
from skylog.testing import consume

from .sink_staged import sink_options, stage_values

PER_BATCH = 12
PARTITIONS = 3


class Killed(BaseException):
    """Simulates the end of a process. Nothing catches it."""


def killed_at(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, number: int, *, after: bool) -> None:
    """Let the `number`th call of a method be the last thing that happens, before or after it has been done."""
    original: Callable[..., Any] = getattr(owner, method)
    calls = iter(range(1, 1_000_000))

    def call(*args: Any) -> Any:
        is_last = next(calls) == number
        if is_last and not after:
            raise Killed
        result = original(*args)
        if is_last:
            raise Killed
        return result

    monkeypatch.setattr(owner, method, call)


class Sink:
    """The driver of a query, in this process."""

    def __init__(self, bootstrap: str, topic: str, query: Path) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._query = query

    def write(self, batch_id: int, *, transactional: bool = True) -> None:
        options = sink_options(self._bootstrap, transactional=transactional, max_request_size="160")
        values = [f"{batch_id}-{number}".encode() for number in range(PER_BATCH)]
        staged = stage_values(self._query, self._topic, values, partitions=PARTITIONS, batch_id=batch_id)
        deliver_micro_batch(options, self._query, batch_id, [staged])

    def committed(self) -> Counter[int]:
        """How many records of each micro-batch a read_committed reader finds."""
        values = [message.value or b"" for message in consume(self._bootstrap, self._topic)]
        assert len(values) == len(set(values)), "a record is there twice"
        return Counter(int(value.partition(b"-")[0]) for value in values)

    def write_under_kills(self, method: str) -> int:
        """Kill the driver of every micro-batch one step later than that of the one before, until one gets through.

        Steps are calls of a method of the connections. Every micro-batch must be seen whole or not at all after the
        kill, and once after the next attempt. Returns how many there were.
        """
        batch_id, was_killed, found_stored = 0, True, 0
        while was_killed:
            with pytest.MonkeyPatch.context() as patch:
                killed_at(patch, BrokerConnection, method, batch_id + 1, after=True)
                try:
                    self.write(batch_id)
                    was_killed = False
                except Killed:
                    assert self.committed()[batch_id] in (0, PER_BATCH)
            if was_killed:
                found_stored += not self._sends(batch_id)
            batch_id += 1
        assert self.committed() == dict.fromkeys(range(batch_id), PER_BATCH)
        assert found_stored, "no driver was killed after a commit, which the next one has to find out"
        return batch_id

    def _sends(self, batch_id: int) -> bool:
        """Write a micro-batch, and return whether anything was sent for that."""
        with pytest.MonkeyPatch.context() as patch:
            sent: list[Publisher] = []
            original = Publisher.publish

            def publish(self: Publisher, *, resume: bool) -> None:
                sent.append(self)
                original(self, resume=resume)

            patch.setattr(Publisher, "publish", publish)
            self.write(batch_id)
        return bool(sent)
