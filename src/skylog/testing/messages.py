"""Produces and consumes messages in one call each. For tests: every call creates a new client."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from skylog.client import Admin, Connection, Message, PartitionReader, Producer

_SETTINGS: Final = {
    "message.timeout.ms": 10_000,
    "topic.metadata.propagation.max.ms": 2000,  # how long to wait for a missing topic
}


def produce(
    bootstrap: str, topic: str, values: Iterable[object], *, key: object = None, partition: int | None = None
) -> None:
    """Send values in order and wait until they are stored. Without a partition, the key decides.

    Raises SkylogError for the first that could not be stored.
    """
    connection = Connection(bootstrap)
    connection.metadata(connection.admin_client())  # fails fast if no broker is reachable
    with Producer(bootstrap, config=_SETTINGS) as producer, producer.batch():
        for value in values:
            producer.send(topic, value, key, partition=partition)


def consume(bootstrap: str, topic: str, count: int | None = None, *, timeout_s: float = 10.0) -> list[Message]:
    """Read a topic from the start, each partition in order: the first `count` messages, or all current ones.

    Uses no group and commits nothing. Raises AssertionError if `count` messages don't arrive in time.
    """
    connection = Connection(bootstrap)
    admin = Admin(connection)
    ranges = admin.offset_ranges(admin.describe_topic(topic).topic_partitions)
    reader = PartitionReader(connection, {key: offsets.start_offset for key, offsets in ranges.items()})
    try:
        if count is None:
            return [message for messages in reader.read_to_end(ranges) for message in messages]
        found: list[Message] = []
        deadline = time.monotonic() + timeout_s
        while len(found) < count:
            assert time.monotonic() < deadline, (
                f"topic '{topic}' gave {len(found)} of {count} messages in {timeout_s} s"
            )
            found += reader.read()
        return found[:count]
    finally:
        reader.close()
