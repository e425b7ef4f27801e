"""A message that a consumer returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from operator import methodcaller
from typing import Any, Final, Generic, NamedTuple

import orjson
from confluent_kafka import Message as LibraryMessage

from skylog.client.errors import DeserializeError
from skylog.client.serializers import Deserializer, ValueT, ValueT_co
from skylog.model import TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]

UNREADABLE_HEADERS: Final[Headers] = (("(headers that cannot be read: a name is not UTF-8)", None),)
# If a name is not UTF-8, the library returns a value and also sets an exception. A Python call that the interpreter has
# specialized does not notice; a call from C does.
_library_headers: Final = methodcaller("headers")


class Message(NamedTuple, Generic[ValueT_co]):
    """One message of a log. Wraps librdkafka's message and reads its fields on access.

    `Message[Order]` has values that a deserializer has converted to Order. Without a deserializer, values are bytes. A
    message can be pickled if its deserializer can.

    A tuple of one item, because that is the fastest wrapper to create; see `message_maker`.
    """

    raw: LibraryMessage

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.raw.topic() or ""

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.raw.partition() or 0

    @property
    def offset(self) -> int:
        """The position in the partition."""
        return self.raw.offset() or 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition, as one value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970; negative if the message has no timestamp."""
        return self.raw.timestamp()[1]

    @property
    def time(self) -> datetime | None:
        """The timestamp as a datetime in UTC; None if the message has none."""
        return None if self.timestamp_ms < 0 else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def key(self) -> bytes | None:
        """The key as it is stored; None if the message has none."""
        key: Any = self.raw.key()
        return key  # type: ignore[no-any-return]  # librdkafka returns bytes

    @property
    def value(self) -> ValueT_co | None:
        """The payload: bytes, or the result of the consumer's deserializer. None for a tombstone."""
        value: Any = self.raw.value()
        return value  # type: ignore[no-any-return]  # bytes: a message with a deserializer has a class of its own

    @property
    def headers(self) -> Headers:
        """The headers in order; UNREADABLE_HEADERS if a name is not UTF-8, which the library cannot return."""
        try:
            found: Any = _library_headers(self.raw)
        except SystemError:
            # The library would return a broken part of them next time.
            self.raw.set_headers(list(UNREADABLE_HEADERS))
            return UNREADABLE_HEADERS
        return tuple(found) if found else ()

    def text(self) -> str:
        """Decode the value as UTF-8."""
        return str(self._decode(bytes.decode, self.raw.value()))

    def json(self) -> Any:
        """Parse the value as JSON."""
        return self._decode(orjson.loads, self.raw.value())

    def __repr__(self) -> str:
        return f"<Message {self.topic_partition} at {self.offset}: key {self.raw.key()!r}, value {self.raw.value()!r}>"

    def __reduce__(self) -> tuple[Callable[..., Message[Any]], tuple[StoredRecord, None]]:
        return _restored, (stored_record(self), None)

    def _decode(self, decode: Callable[[Any], Any], data: Any) -> Any:
        if data is None:
            raise DeserializeError(self.topic, self.partition, self.offset, "it is null: a tombstone")
        try:
            return decode(data)
        except Exception as error:  # a deserializer is application code and may raise anything
            raise DeserializeError(self.topic, self.partition, self.offset, error) from error


class StoredRecord(NamedTuple):
    """What a pickled message consists of. Has the methods of librdkafka's message that `Message` calls."""

    place: tuple[str, int, int]
    times: tuple[int, int]
    key_bytes: bytes | None
    value_bytes: bytes | None
    header_pairs: Headers

    def topic(self) -> str:
        """The name of the topic."""
        return self.place[0]

    def partition(self) -> int:
        """The number of the partition."""
        return self.place[1]

    def offset(self) -> int:
        """The position in the partition."""
        return self.place[2]

    def timestamp(self) -> tuple[int, int]:
        """The type of the timestamp, and its milliseconds."""
        return self.times

    def key(self) -> bytes | None:
        """The key."""
        return self.key_bytes

    def value(self) -> bytes | None:
        """The value."""
        return self.value_bytes

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """The headers; None if there are none."""
        return list(self.header_pairs) or None

    def error(self) -> None:
        """No error: only messages are pickled."""


def stored_record(message: Message[object]) -> StoredRecord:
    """Copy everything that librdkafka's message holds."""
    raw: Any = message.raw
    place = message.topic, message.partition, message.offset
    return StoredRecord(place, raw.timestamp(), message.key, raw.value(), message.headers)


def message_maker(
    deserializer: Deserializer[ValueT] | None,
) -> Callable[[Iterable[LibraryMessage]], Iterator[Message[ValueT]]]:
    """Return a function that wraps librdkafka's messages without running Python code for each."""
    make: Callable[[tuple[LibraryMessage]], Message[ValueT]] = partial(tuple.__new__, _message_class(deserializer))
    return lambda received: map(make, zip(received))


def _message_class(deserializer: Deserializer[Any] | None) -> type[Message[Any]]:
    """Return the class of messages whose value is deserialized on access; None stays None."""
    if deserializer is None:
        return Message

    decode = deserializer

    class DecodedMessage(Message[Any]):
        __slots__ = ()

        @property
        def value(self) -> Any:
            data = self.raw.value()
            return None if data is None else self._decode(decode, data)

        def __reduce__(self) -> tuple[Callable[..., Message[Any]], tuple[StoredRecord, Any]]:
            return _restored, (stored_record(self), decode)

    return DecodedMessage


def _restored(record: Any, deserializer: Deserializer[Any] | None) -> Message[Any]:
    """Return a message that was pickled."""
    return next(message_maker(deserializer)([record]))
