"""Buffers messages that librdkafka has received and the application has not taken yet."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from threading import get_ident
from typing import Final, Generic

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import Message as LibraryMessage

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.errors import OffsetOutOfRangeError, TopicNotFoundError
from skylog.client.message import Message, message_maker
from skylog.client.serializers import Deserializer, ValueT
from skylog.errors import ErrorCode
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

MAX_MESSAGES: Final = 1000
_UNKNOWN_TOPIC: Final = frozenset(
    {LibraryError._UNKNOWN_TOPIC, LibraryError._UNKNOWN_PARTITION, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
)
_OUT_OF_RANGE: Final = frozenset({LibraryError._AUTO_OFFSET_RESET, int(ErrorCode.OFFSET_OUT_OF_RANGE)})


class Inbox(Generic[ValueT]):
    """The messages that are `ready` for the application, in the order of arrival.

    Takes many messages from librdkafka at a time: a call per message costs more than the message itself.
    """

    def __init__(
        self,
        client: LibraryConsumer,
        connection: Connection,
        deserializer: Deserializer[ValueT] | None,
    ) -> None:
        self.ready: deque[Message[ValueT]] = deque()
        self._client = client
        self._connection = connection
        self._wrap = message_maker(deserializer)
        self.is_interrupted = False  # during a fill: messages that it had taken from librdkafka are lost here
        self._filling: set[int] = set()  # the threads that do it now
        self._errors: deque[LibraryMessage] = deque()
        self._out_of_range: dict[TopicPartition, OffsetOutOfRangeError] = {}
        self._moved: dict[TopicPartition, int] = {}  # the new offset, until a message arrives from there

    def fill(self, timeout_s: float, max_messages: int = MAX_MESSAGES) -> None:
        """Take available messages, waiting for the first. Raises SkylogError for permanent errors.

        Ctrl-C or a callback of the application may interrupt this at any point. Then it `is_interrupted`, and its owner
        must make librdkafka read again from the last processed message.
        """
        if not self.ready:
            self._raise_errors()
        self.is_interrupted = True
        received = self._receive(timeout_s, max_messages)
        if received:
            good = [raw for raw in received if raw.error() is None]
            if len(good) < len(received):  # raised after the application has taken the messages before them
                self._errors.extend(raw for raw in received if raw.error() is not None)
            if good:
                self._connection.down_reason = None
            self.ready.extend(self._wrap(good))
            if self._moved:
                for raw in good:
                    self._moved.pop(TopicPartition(raw.topic() or "", raw.partition() or 0), None)
        self.is_interrupted = False
        self._connection.take_errors(self._client, warns=True)
        if not self.ready:
            self._raise_errors()

    def _receive(self, timeout_s: float, max_messages: int) -> list[LibraryMessage]:
        thread = get_ident()
        self._filling.add(thread)
        try:
            first = self._client.poll(timeout_s)
            if first is None:
                return []
            return [first, *self._client.consume(max_messages - 1, 0)] if max_messages > 1 else [first]
        finally:
            self._filling.discard(thread)

    @property
    def is_being_filled(self) -> bool:
        """Whether a thread fills it now. For another one, confluent-kafka's `poll` can wait for ever, even with 0 s."""
        return bool(self._filling)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the messages and errors of these partitions."""
        gone = set(partitions)
        kept = [message for message in self.ready if message.topic_partition not in gone]
        self.ready.clear()  # in place: an iterator may hold it
        self.ready.extend(kept)
        self._errors = deque(raw for raw in self._errors if (raw.topic(), raw.partition()) not in gone)
        for key in gone:
            self._out_of_range.pop(key, None)
            self._moved.pop(key, None)

    def move(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop everything of these partitions, because librdkafka will continue at other offsets."""
        self.forget(offsets)
        self._moved.update((key, offset) for key, offset in offsets.items() if offset >= 0)

    def _raise_errors(self) -> None:
        while self._errors:
            self._raise_error(self._errors.popleft())
        for error in self._out_of_range.values():  # that partition delivers nothing until the application seeks
            raise error

    def _raise_error(self, raw: LibraryMessage) -> None:
        """Raise an error that librdkafka reports, unless librdkafka recovers from it."""
        error = raw.error()
        assert error is not None
        topic, partition = raw.topic(), raw.partition()
        if error.code() == LibraryError._MAX_POLL_EXCEEDED:
            logger.warning("processing took too long, the consumer rejoins its group: %s", error.str())
            return
        if error.code() in _UNKNOWN_TOPIC:
            raise TopicNotFoundError(topic or "", self._connection.metadata(self._client).topics)
        if topic and partition is not None and error.code() in _OUT_OF_RANGE:
            key = TopicPartition(topic, partition)
            if self._moved.get(key, raw.offset()) != raw.offset():
                return  # it concerns the offset before the last seek
            offsets = Admin(self._connection).offset_ranges([key])[key]
            self._out_of_range[key] = OffsetOutOfRangeError(
                topic, partition, raw.offset() or 0, offsets.start_offset, offsets.end_offset
            )
            return
        if topic or error.fatal() or error.code() >= 0:
            raise self._connection.error(
                error, f"{topic}-{partition} at offset {raw.offset()}" if topic else "consuming"
            )
        logger.debug("librdkafka recovers from: %s", error.str())
