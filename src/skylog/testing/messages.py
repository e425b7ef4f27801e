"""Messages into a topic and out of it, in one call each. For tests: every call makes a client of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from skylog.client import Admin, Connection, Message, PartitionReader, Producer

_SETTINGS: Final = {
    "message.timeout.ms": 10_000,
    "topic.metadata.propagation.max.ms": 2000,  # for so long a topic that is missing may still be about to come
}


def produce(
    bootstrap: str, topic: str, values: Iterable[Any], *, key: Any = None, partition: int | None = None
) -> None:
    """Send values in order and wait until they are stored. Where no partition is given, the key decides.

    Raises SkylogError for the first that could not be stored.
    """
    connection = Connection(bootstrap)
    connection.metadata(connection.admin_client())  # says at once if nobody is there
    with Producer(bootstrap, config=_SETTINGS) as producer, producer.batch():
        for value in values:
            producer.send(topic, value, key, partition=partition)


def consume(bootstrap: str, topic: str, count: int | None = None, *, timeout_s: float = 10.0) -> list[Message]:
    """Messages from the beginning of a topic, each partition in its order: the first `count`, or what is there now.

    Belongs to no group and commits nothing. Raises AssertionError if `count` messages don't come in time.
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
