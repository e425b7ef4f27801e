"""Commits offsets for a group without members, with a consumer that does not join it. Runs in the driver.

librdkafka's admin client could commit too, but aborts the process (an assertion in `rd_kafka_enq_once_del_source`) if
the coordinator becomes unavailable during the request. A consumer keeps the commit and retries.
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

_FIRST_POLL_S: Final = 0.001  # a poll lasts its whole time: it calls back, and goes on waiting for a message
_LONGEST_POLL_S: Final = 0.1

CommitResult = tuple[LibraryError | None, list[LibraryPartition]]
_NO_COMMIT: Final[CommitResult] = (None, [])


class GroupCommits:
    """The commits of one group. For one thread.

    Only one commit is in flight at a time. librdkafka still sends a timed-out commit when the broker is back. A newer
    commit waits for that response; otherwise the older one could overwrite it.
    """

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._result: CommitResult | None = _NO_COMMIT
        self._consumer: Consumer = connection.consumer(
            {"group.id": group, "enable.auto.commit": False, "on_commit": self._on_commit}
        )

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets. Raises KafkaError if the group has members, BrokerUnreachableError after the timeout."""
        began = time.monotonic()
        self._wait_for_result(began)
        self._result = None
        positions: Any = [LibraryPartition(*key, at) for key, at in offsets.items()]
        self._consumer.commit(offsets=positions, asynchronous=True)
        error, rows = self._wait_for_result(began)
        self._connection.down_reason = None
        doing = f"cannot commit offsets of group '{self._group}'; it must not have other members"
        for found in (error, *(row.error for row in rows)):
            if found is not None:
                raise self._connection.error(found, doing)

    def _wait_for_result(self, began: float) -> CommitResult:
        poll_s = _FIRST_POLL_S
        while self._result is None:
            elapsed_s = time.monotonic() - began
            is_down = self._connection.down_reason is not None and elapsed_s >= GIVE_UP_S
            if is_down or elapsed_s >= self._connection.timeout_s:
                raise self._connection.error(LibraryError(LibraryError._TIMED_OUT), "committing")
            self._consumer.poll(poll_s)
            poll_s = min(2 * poll_s, _LONGEST_POLL_S)
        return self._result

    def _on_commit(self, error: LibraryError | None, rows: list[LibraryPartition]) -> None:
        self._result = error, rows
