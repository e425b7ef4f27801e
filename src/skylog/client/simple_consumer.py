"""Reads one partition from an explicit offset, without a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from time import monotonic
from typing import Any, Final, Generic, Literal, Self

from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.errors import OffsetOutOfRangeError
from skylog.client.handles import check_handle, is_inherited
from skylog.client.inbox import MAX_MESSAGES, Inbox
from skylog.client.kafka_settings import isolation
from skylog.client.message import Message
from skylog.client.serializers import Deserializer, ValueT
from skylog.errors import ConfigError, SkylogError
from skylog.model import TopicPartition

Offset = int | Literal["earliest", "latest"]

_WAIT_S: Final = 0.2
_SETTINGS: Final[dict[str, Any]] = {
    "group.id": "skylog-simple-consumer",  # required by the library; no group is joined and nothing is committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    "fetch.queue.backoff.ms": 10,  # with the default, a fast reader pauses for a second again and again
    "auto.offset.reset": "error",
}


class SimpleConsumer(Generic[ValueT]):
    """Reads one partition. `offset` is always the offset of the next message to read; assign to it to seek.

        consumer = SimpleConsumer("letters", partition=0, offset=1)
        [message.text() for message in consumer.consume()]   # ["b", "c", "d", "e"]
        consumer.offset                                      # 5
        consumer.offset = 0                                  # again from the start
        for message in consumer:                             # waits for more at the end of the log
            print(message.offset, message.text())

    You store the offset yourself. Stored in one transaction with your results, each message counts exactly once.
    `offset` may also be "earliest" or "latest". `read_committed=False` also delivers the messages of open and aborted
    transactions. Use a consumer from one thread at a time.
    """

    def __init__(
        self,
        topic: str,
        partition: int = 0,
        offset: Offset = "earliest",
        bootstrap: str | None = None,
        *,
        deserializer: Deserializer[ValueT] | None = None,
        read_committed: bool = True,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self.topic_partition = TopicPartition(topic, partition)
        self._connection = Connection(bootstrap, config)
        self._connection.warn_as(f"the reader of {self.topic_partition} waits")
        self._admin = Admin(self._connection)
        self._check_partition()
        self._client = self._connection.consumer({**_SETTINGS, **isolation(read_committed), **(config or {})})
        self._inbox = Inbox(self._client, self._connection, deserializer)
        self._closed = False
        self._last: Message[ValueT] | None = None  # returned since the offset was set
        self.offset = offset

    @property
    def offset(self) -> int:
        """The offset of the next message to read."""
        return self._offset if self._last is None else self._last.offset + 1

    @offset.setter
    def offset(self, offset: Offset) -> None:
        self._check_open()
        self._place(self._resolve(offset))

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Continue at the first message at or after a time; at the end of the log if there is none."""
        found = self._admin.offsets_at([self.topic_partition], timestamp_ms)[self.topic_partition]
        self.offset = "latest" if found is None else found

    def consume(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Message[ValueT]]:
        """Return the next available messages; an empty list if none arrives within `timeout_s`.

        Raises OffsetOutOfRangeError if retention has deleted the offset, BrokerUnreachableError if no broker answers.
        """
        self._check_open()
        ready = self._inbox.ready
        deadline = monotonic() + timeout_s
        while not ready and (left_s := deadline - monotonic()) > 0:
            self._fill(left_s, max_messages)
        if not ready and self._connection.down_reason is not None:
            self._connection.metadata(self._client)  # raises unless a broker answers again
        messages = list(islice(ready, max_messages))
        if messages:
            self._last = messages[-1]
        for _ in messages:
            ready.popleft()
        return messages

    def __iter__(self) -> Iterator[Message[ValueT]]:
        """Yield messages from `offset` on; waits at the end of the log, and while no broker is reachable."""
        ready = self._inbox.ready
        while not self._closed:
            while ready:
                message = self._last = ready[0]
                ready.popleft()
                yield message
            if not self._closed:
                check_handle(self._client)
                self._fill(_WAIT_S)

    def close(self) -> None:
        """Close the connection. Nothing is committed."""
        self._closed = True
        self._inbox.ready.clear()
        if not is_inherited(self._client):
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self, timeout_s: float, max_messages: int = MAX_MESSAGES) -> None:
        if self._inbox.is_interrupted:
            self._place(self.offset)
        self._inbox.fill(timeout_s, max_messages)

    def _place(self, offset: int) -> None:
        self._offset = offset
        self._last = None
        self._inbox.move({self.topic_partition: offset})
        self._inbox.is_interrupted = False
        self._client.assign([LibraryPartition(*self.topic_partition, offset)])

    def _check_open(self) -> None:
        if self._closed:
            raise SkylogError("this consumer is closed; create a new one")
        check_handle(self._client)

    def _check_partition(self) -> None:
        topic, partition = self.topic_partition
        count = len(self._admin.describe_topic(topic).partitions)
        if not 0 <= partition < count:
            raise SkylogError(f"topic '{topic}' has no partition {partition}: it has {count}, numbered from 0")

    def _resolve(self, offset: Offset) -> int:
        """Resolve and check the offset: librdkafka would report a wrong one only at the next fetch."""
        range_ = self._admin.offset_ranges([self.topic_partition])[self.topic_partition]
        if offset == "earliest":
            return range_.start_offset
        if offset == "latest":
            return range_.end_offset
        if not isinstance(offset, int):
            raise ConfigError(f"offset={offset!r}: expected a number, 'earliest' or 'latest'")
        if not range_.start_offset <= offset <= range_.end_offset:
            raise OffsetOutOfRangeError(*self.topic_partition, offset, range_.start_offset, range_.end_offset)
        return offset
