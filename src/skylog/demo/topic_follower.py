"""Follows a topic of results from its beginning. The topic may be created later."""

from __future__ import annotations

from collections.abc import Sequence

from skylog.client import Admin, Connection, Message, PartitionReader, TopicNotFoundError


class TopicFollower:
    """Returns what is new in a topic."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._admin = Admin(connection)
        self._topic = topic
        self._reader: PartitionReader | None = None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def read(self) -> Sequence[Message]:
        """Return the messages since the last call, as far as they have arrived."""
        if self._reader is None:
            try:
                topic = self._admin.describe_topic(self._topic)
            except TopicNotFoundError:
                return ()
            self._reader = PartitionReader(self._connection, dict.fromkeys(topic.topic_partitions, 0))
        return self._reader.read()
