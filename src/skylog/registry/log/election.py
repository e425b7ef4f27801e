"""Elects the registry that writes: the member of a consumer group to which the topic's one partition is assigned.

Every registry joins the group. The group's coordinator assigns the partition to one member, and to another when that
one leaves or its session expires. The assignment is cooperative and sticky, so a registry that joins does not take it
over. The member's client id has the registry's URL, so that the others find it by describing the group.

The election alone does not prevent two writers for a moment; `writer` does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client import Connection, ConsumerGroups, GroupNotFoundError
from skylog.limited_logger import LimitedLogger
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

POLL_S: Final = 0.25
SESSION_MS: Final = 6000
COMMIT_EVERY: Final = 20
"""After this number of polls, the progress is committed, so that monitoring does not take the group for stuck."""
CLIENT_ID: Final = "skylog-registry@"
_SETTINGS: Final[dict[str, Any]] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 1500,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "auto.offset.reset": "latest",
}


class Election:
    """Calls `on_change` on the event loop when this registry is elected, and when it no longer is.

    `position` tells how far the registry has read, for the group's commits.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        group: str,
        url: str,
        on_change: Callable[[bool], None],
        position: Callable[[], int],
    ) -> None:
        self.group = group
        self._topic, self._url = topic, url
        self._connection = connection
        self._on_change, self._position = on_change, position
        settings = {**_SETTINGS, "group.id": group, "client.id": CLIENT_ID + url}
        self._consumer: Consumer = connection.consumer(settings)
        self._is_elected = False
        self._groups: ConsumerGroups | None = None
        self._limited = LimitedLogger(logger)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._thread.start()

    async def close(self) -> None:
        """Leave the group, so that another registry is elected at once."""
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    async def find_writer(self) -> str | None:
        """Return the URL of the registry that is elected now; None while there is none. Raises SkylogError."""
        return await asyncio.to_thread(self._find_writer)

    def _find_writer(self) -> str | None:
        if self._groups is None:
            self._groups = ConsumerGroups(self._connection.another())
        try:
            [group] = self._groups.describe_groups([self.group])
        except GroupNotFoundError:
            return None
        wanted = TopicPartition(self._topic, 0)
        for member in group.members:
            if wanted in member.partitions and member.client_id.startswith(CLIENT_ID):
                return member.client_id.removeprefix(CLIENT_ID)
        return None

    # -- the thread

    def _run(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        polls, committed = 0, -1
        while not self._stopping.is_set():
            message = self._consumer.poll(POLL_S)
            error = None if message is None else message.error()
            if error is not None:
                self._limited.warning("the election waits: %s", error.str())
            polls += 1
            if self._is_elected and polls % COMMIT_EVERY == 0 and self._position() != committed:
                committed = self._commit()
        self._consumer.close()

    def _commit(self) -> int:
        position = self._position()
        try:
            self._consumer.commit(offsets=[LibraryPartition(self._topic, 0, position)], asynchronous=True)
        except KafkaException as error:
            self._limited.warning("cannot commit the progress of the group: %s", error.args[0].str())
        return position

    def _assigned(self, consumer: Consumer, partitions: list[LibraryPartition]) -> None:
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)  # the follower reads them, not the group
        if partitions:
            self._change(True)

    def _revoked(self, consumer: Consumer, partitions: list[LibraryPartition]) -> None:
        consumer.incremental_unassign(partitions)
        if partitions:
            self._change(False)

    def _change(self, is_elected: bool) -> None:
        self._is_elected = is_elected
        try:
            self._loop.call_soon_threadsafe(self._on_change, is_elected)
        except RuntimeError:  # the loop is closed: the process ends
            self._stopping.set()
