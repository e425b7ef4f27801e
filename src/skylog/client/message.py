"""A message as an application reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from operator import methodcaller
from typing import Any, Final, NamedTuple

import orjson
from confluent_kafka import Message as LibraryMessage

from skylog.client.errors import DeserializeError
from skylog.client.serializers import Deserializer
from skylog.model import TopicPartition

Headers = tuple[tuple[str, bytes | None], ...]

UNREADABLE_HEADERS: Final[Headers] = (("(headers that cannot be read: a name is not UTF-8)", None),)
# Where a name is not UTF-8 the library returns something and sets an exception, too. A plain call, once Python has made
# it quick, does not notice; one from C does.
_library_headers: Final = methodcaller("headers")


class Message(NamedTuple):
    """One message of a log. Wraps what librdkafka received and looks at it only when asked.

    A tuple of one, because of all wrappers that is the one made most quickly; see `message_maker`.
    """

    raw: LibraryMessage

    @property
    def topic(self) -> str:
        return self.raw.topic() or ""

    @property
    def partition(self) -> int:
        return self.raw.partition() or 0

    @property
    def offset(self) -> int:
        return self.raw.offset() or 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970; negative where the message has no time."""
        return self.raw.timestamp()[1]

    @property
    def time(self) -> datetime | None:
        """The same in UTC; None where the message has no time."""
        return None if self.timestamp_ms < 0 else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def key(self) -> bytes | None:
        key: Any = self.raw.key()
        return key  # type: ignore[no-any-return]  # librdkafka hands out bytes

    @property
    def value(self) -> Any:
        """The payload: bytes, or what the consumer's deserializer makes of them. None for a tombstone."""
        return self.raw.value()

    @property
    def headers(self) -> Headers:
        """In their order; UNREADABLE_HEADERS where a name is not UTF-8, which the library cannot hand out."""
        try:
            found: Any = _library_headers(self.raw)
        except SystemError:
            # The library would hand out the broken half of it next time.
            self.raw.set_headers(list(UNREADABLE_HEADERS))
            return UNREADABLE_HEADERS
        return tuple(found) if found else ()

    def text(self) -> str:
        """The value as UTF-8 text."""
        return str(self._decode(bytes.decode, self.raw.value()))

    def json(self) -> Any:
        """The value as JSON."""
        return self._decode(orjson.loads, self.raw.value())

    def __repr__(self) -> str:
        return f"<Message {self.topic_partition} at {self.offset}: key {self.raw.key()!r}, value {self.raw.value()!r}>"

    def _decode(self, decode: Callable[[Any], Any], data: Any) -> Any:
        if data is None:
            raise DeserializeError(self.topic, self.partition, self.offset, "it has none: a tombstone")
        try:
            return decode(data)
        except Exception as error:  # a deserializer is the application's and may raise anything
            raise DeserializeError(self.topic, self.partition, self.offset, error) from error


Wrap = Callable[[Iterable[LibraryMessage]], Iterator[Message]]


def message_maker(deserializer: Deserializer | None) -> Wrap:
    """What makes messages of what librdkafka received; no Python code runs for any of them."""
    kind: type[Message] = Message
    if deserializer is not None:
        kind = _decoded_by(deserializer)
    make = partial(tuple.__new__, kind)
    return lambda received: map(make, zip(received))


def _decoded_by(deserializer: Deserializer) -> type[Message]:
    """Messages whose value is what a deserializer makes of it, when it is asked for; None stays None."""

    class DecodedMessage(Message):
        __slots__ = ()

        @property
        def value(self) -> Any:
            data = self.raw.value()
            return None if data is None else self._decode(deserializer, data)

    return DecodedMessage
