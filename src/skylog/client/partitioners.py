"""Which partition a message goes to.

By name: `murmur2` puts a key where Kafka's Java clients put it, `keyed` where other clients of librdkafka do (CRC32);
messages without a key are spread, a run of them at a time. `random` looks at no key. Or a function of one's own:

    def by_organisation(key: dict, partition_count: int) -> int:
        return key["organisation"] % partition_count
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibraryProducer

from skylog.client.connection import Connection
from skylog.client.errors import TopicNotFoundError
from skylog.errors import ConfigError, ErrorCode, SkylogError

Partitioner = Callable[[Any, int], int]
"""Takes a message's key, as it was given to `send`, and the number of partitions; gives the number of one."""

LIBRARY_NAMES: Final = {"murmur2": "murmur2_random", "keyed": "consistent_random", "random": "random"}
REFRESH_S: Final = 60.0
_ATTEMPT_S: Final = 1.0
_PATIENCE_S: Final = 10.0


def library_name(name: str) -> str:
    """What librdkafka calls a partitioner. Raises ConfigError."""
    if name not in LIBRARY_NAMES:
        raise ConfigError(f"partitioner={name!r}: expected {', '.join(LIBRARY_NAMES)}, or a function")
    return LIBRARY_NAMES[name]


class OwnPartitioner:
    """Asks an application's function, and knows how many partitions there are to choose from."""

    def __init__(self, choose: Partitioner, connection: Connection, client: LibraryProducer) -> None:
        self._choose = choose
        self._connection = connection
        self._client = client
        self._counts: dict[str, tuple[int, float]] = {}

    def partition(self, topic: str, key: Any) -> int:
        """Raises SkylogError where the function gives a partition that there is not."""
        known = self._counts.get(topic)
        if known is None or time.monotonic() > known[1]:
            known = self._counts[topic] = self._count(topic, known), time.monotonic() + REFRESH_S
        chosen = self._choose(key, known[0])
        if not 0 <= chosen < known[0]:
            raise SkylogError(
                f"the partitioner chose {chosen} for key {key!r}; '{topic}' has {known[0]} partitions, numbered from 0"
            )
        return chosen

    def _count(self, topic: str, known: tuple[int, float] | None) -> int:
        try:
            return self._ask(topic)
        except SkylogError:
            if known is None:
                raise
            return known[0]  # messages can wait for the broker; their partition is chosen now

    def _ask(self, topic: str) -> int:
        """The number of partitions. Asking for a topic creates it, where the cluster does that, as sending would."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                topics = self._client.list_topics(topic, timeout=_ATTEMPT_S).topics
            except KafkaException as error:
                if time.monotonic() > deadline or self._connection.down_reason is not None:
                    raise self._connection.error(error, f"asking for the partitions of '{topic}'") from error
                continue
            if topics[topic].partitions:
                return len(topics[topic].partitions)
            if topics[topic].error.code() == ErrorCode.INVALID_TOPIC_EXCEPTION or time.monotonic() > deadline:
                raise TopicNotFoundError(topic, self._connection.metadata(self._client).topics)
            time.sleep(0.1)  # it is being created
