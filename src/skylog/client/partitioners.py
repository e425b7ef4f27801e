"""Partitioners: choose the partition of a message.

By name: `murmur2` hashes the key like Kafka's Java clients, `keyed` like other librdkafka clients (CRC32); both spread
messages without a key, a run of them at a time. `random` ignores the key. Or a function of your own:

    def by_organisation(key: dict | None, partition_count: int) -> int | None:
        return None if key is None else key["organisation"] % partition_count
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Never

from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibraryProducer

from skylog.client.connection import Connection
from skylog.client.errors import TopicNotFoundError
from skylog.errors import ConfigError, ErrorCode, SkylogError

Partitioner = Callable[[Never, int], int | None]
"""Takes a message's key, as passed to `send`, or None, and the number of partitions. Returns the number of one, or None
for any."""

LIBRARY_NAMES: Final = {"murmur2": "murmur2_random", "keyed": "consistent_random", "random": "random"}
REFRESH_S: Final = 60.0
ANY: Final = -1
_ATTEMPT_S: Final = 1.0
_PATIENCE_S: Final = 10.0


def library_name(name: str) -> str:
    """Return librdkafka's name of a partitioner. Raises ConfigError."""
    if name not in LIBRARY_NAMES:
        raise ConfigError(f"partitioner={name!r}: expected {', '.join(LIBRARY_NAMES)}, or a function")
    return LIBRARY_NAMES[name]


class CustomPartitioner:
    """Calls the application's function with the number of partitions, which it caches."""

    def __init__(self, choose: Partitioner, connection: Connection, client: LibraryProducer) -> None:
        self._choose: Callable[[Any, int], int | None] = choose
        self._connection = connection
        self._client = client
        self._counts: dict[str, tuple[int, float]] = {}

    def partition(self, topic: str, key: Any) -> int:
        """Return the partition, or ANY. Raises SkylogError if the function returns a partition that does not exist."""
        known = self._counts.get(topic)
        if known is None or time.monotonic() > known[1]:
            known = self._counts[topic] = self._count(topic, known), time.monotonic() + REFRESH_S
        chosen = self._choose(key, known[0])
        if chosen is None:
            return ANY
        if not 0 <= chosen < known[0]:
            raise SkylogError(
                f"the partitioner chose {chosen} for key {key!r}; '{topic}' has {known[0]} partitions, numbered from 0"
            )
        return chosen

    def _count(self, topic: str, known: tuple[int, float] | None) -> int:
        try:
            return self._fetch_count(topic)
        except SkylogError:
            if known is None:
                raise
            return known[0]  # messages can wait for the broker, but their partition is chosen now

    def _fetch_count(self, topic: str) -> int:
        """Fetch the number of partitions. Like sending, this creates the topic on a cluster with auto-creation."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                topics = self._client.list_topics(topic, timeout=_ATTEMPT_S).topics
            except KafkaException as error:
                if time.monotonic() > deadline or self._connection.down_reason is not None:
                    raise self._connection.error(error, f"cannot fetch the partitions of '{topic}'") from error
                continue
            if topics[topic].partitions:
                return len(topics[topic].partitions)
            if topics[topic].error.code() == ErrorCode.INVALID_TOPIC_EXCEPTION or time.monotonic() > deadline:
                raise TopicNotFoundError(topic, self._connection.metadata(self._client).topics)
            time.sleep(0.1)  # it is being created
