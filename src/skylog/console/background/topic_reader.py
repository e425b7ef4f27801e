"""Reads a small topic, and what is added to it, in the background. Only while a page shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from skylog.client import Admin, Message, PartitionReader
from skylog.console.background.on_demand import OnDemandTask
from skylog.console.cluster.client_pool import ClientPool
from skylog.errors import SkylogError
from skylog.model import TopicPartition

INTERVAL_S: Final = 2.0
_MAX_READ_S: Final = 10.0
_MAX_SILENCE_S: Final = 3.0
_TIMEOUT_S: Final = 5.0


class TopicReader:
    """Calls `add` with each message of a compacted topic, in a thread, and `reset` before it begins again.

    Call `request` from the event loop. The topic may be created later, or deleted and created again.
    """

    def __init__(
        self, cluster: ClientPool, topic: str, add: Callable[[Message], None], reset: Callable[[], None]
    ) -> None:
        self.exists = False
        self._cluster, self._topic = cluster, topic
        self._add, self._reset = add, reset
        self._reader: PartitionReader | None = None
        self._reading = OnDemandTask(f"reader of {topic}", self._read, INTERVAL_S, self._close_reader)

    @property
    def problem(self) -> str | None:
        return self._reading.problem

    async def request(self) -> None:
        """Keep reading. Waits for the first read."""
        await self._reading.request(_TIMEOUT_S)

    def close(self) -> None:
        self._reading.close()

    def _read(self) -> None:
        """Read new messages, and the whole topic at first. The topic is compacted, so it is short."""
        reader = self._reader or self._open_reader()
        if reader is None:
            return
        try:
            is_current = self._read_new(reader)
        except BaseException:
            self._close_reader()  # the topic may have been deleted and created again
            raise
        if not is_current:
            raise SkylogError(f"no response while reading topic '{self._topic}'; what is shown may be out of date")

    def _read_new(self, reader: PartitionReader) -> bool:
        """Read until the end of the topic or for _MAX_READ_S. False if no message arrives although there are more."""
        began = received_at = time.monotonic()
        while (now := time.monotonic()) - began < _MAX_READ_S:
            messages = reader.read()
            for message in messages:
                self._add(message)
            if messages:
                received_at = now
            elif reader.at_end == reader.partitions and not reader.lost_s:
                return True
            elif now - received_at > _MAX_SILENCE_S:
                return False
        return True

    def _open_reader(self) -> PartitionReader | None:
        connection = self._cluster.connection()
        topic = next((each for each in Admin(connection).list_topics() if each.name == self._topic), None)
        self.exists = topic is not None
        self._reset()
        if topic is not None:
            starts = {TopicPartition(self._topic, partition.index): 0 for partition in topic.partitions}
            self._reader = PartitionReader(connection, starts)
        return self._reader

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
