"""Commits for a group without members, by a consumer that joins nothing. Runs in the driver.

librdkafka's admin client can do it too, and ends the whole process (an assertion in `rd_kafka_enq_once_del_source`) if
the coordinator goes away while it is asked. A consumer keeps the commit and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client import Connection
from skylog.client.connection import GIVE_UP_S
from skylog.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_POLL_S: Final = 0.1

Answer = tuple[LibraryError | None, list[LibraryPartition]]
_NOTHING_ASKED: Final[Answer] = (None, [])


class GroupCommits:
    """The commits of one group. One object serves one thread.

    One commit is under way at a time. librdkafka sends one that was given up when the broker is back: a newer one waits
    for its answer, or the group might fall back.
    """

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._answer: Answer | None = _NOTHING_ASKED
        self._consumer: Consumer = connection.consumer(
            {"group.id": group, "enable.auto.commit": False, "on_commit": self._on_commit}
        )

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises KafkaError if the group has members, BrokerUnreachableError if nobody answers in time."""
        began = time.monotonic()
        self._wait_for_answer(began)
        self._answer = None
        asked: Any = [LibraryPartition(*key, at) for key, at in offsets.items()]
        self._consumer.commit(offsets=asked, asynchronous=True)
        error, rows = self._wait_for_answer(began)
        self._connection.down_reason = None
        doing = f"cannot commit of group '{self._group}'; it must have no members of another kind"
        for found in (error, *(row.error for row in rows)):
            if found is not None:
                raise self._connection.error(found, doing)

    def _wait_for_answer(self, began: float) -> Answer:
        while self._answer is None:
            elapsed_s = time.monotonic() - began
            refused = self._connection.down_reason is not None and elapsed_s >= GIVE_UP_S
            if refused or elapsed_s >= self._connection.timeout_s:
                raise self._connection.error(LibraryError(LibraryError._TIMED_OUT), "committing")
            self._consumer.poll(_POLL_S)
        return self._answer

    def _on_commit(self, error: LibraryError | None, rows: list[LibraryPartition]) -> None:
        self._answer = error, rows
