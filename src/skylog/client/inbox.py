"""Messages that librdkafka has received and the application has not taken yet."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import Message as LibraryMessage

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.errors import OffsetOutOfRangeError, TopicNotFoundError
from skylog.client.message import Message, message_maker
from skylog.client.serializers import Deserializer
from skylog.errors import ErrorCode
from skylog.model import TopicPartition

logger = logging.getLogger(__name__)

MAX_MESSAGES: Final = 1000
_UNKNOWN_TOPIC: Final = frozenset(
    {LibraryError._UNKNOWN_TOPIC, LibraryError._UNKNOWN_PARTITION, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
)
_OUT_OF_RANGE: Final = frozenset({LibraryError._AUTO_OFFSET_RESET, int(ErrorCode.OFFSET_OUT_OF_RANGE)})


class Inbox:
    """What a consumer has `ready` for the application, in the order in which it came.

    Takes from librdkafka many messages at a time: asking for each costs more than the message itself.
    """

    def __init__(
        self,
        client: LibraryConsumer,
        connection: Connection,
        deserializer: Deserializer | None,
    ) -> None:
        self.ready: deque[Message] = deque()
        self._client = client
        self._connection = connection
        self._wrap = message_maker(deserializer)
        self.is_torn = False  # a fill was broken off: what it had taken from librdkafka is lost here
        self._errors: deque[LibraryMessage] = deque()
        self._lost: dict[TopicPartition, OffsetOutOfRangeError] = {}
        self._moved: dict[TopicPartition, int] = {}  # to where, while nothing has come from there

    def fill(self, timeout_s: float, max_messages: int = MAX_MESSAGES) -> None:
        """Take in what there is, waiting for the first of it. Raises SkylogError for what will not pass by itself.

        Anything may break it off: Ctrl-C, or a callback of the application's. Then it `is_torn`, and its owner has to
        let librdkafka read again from what was done with.
        """
        if not self.ready:
            self._tell_errors()
        self.is_torn = True
        first = self._client.poll(timeout_s)
        if first is not None:
            received = [first, *self._client.consume(max_messages - 1, 0)] if max_messages > 1 else [first]
            good = [raw for raw in received if raw.error() is None]
            if len(good) < len(received):  # told when the application has had what came before
                self._errors.extend(raw for raw in received if raw.error() is not None)
            if good:
                self._connection.down_reason = None
            self.ready.extend(self._wrap(good))
            if self._moved:
                for raw in good:
                    self._moved.pop(TopicPartition(raw.topic() or "", raw.partition() or 0), None)
        self.is_torn = False
        if not self.ready:
            self._tell_errors()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is ready of these partitions, and what was wrong with them."""
        gone = set(partitions)
        kept = [message for message in self.ready if message.topic_partition not in gone]
        self.ready.clear()  # in place: an iteration may hold it
        self.ready.extend(kept)
        self._errors = deque(raw for raw in self._errors if (raw.topic(), raw.partition()) not in gone)
        for key in gone:
            self._lost.pop(key, None)
            self._moved.pop(key, None)

    def move(self, offsets: Mapping[TopicPartition, int]) -> None:
        """librdkafka is to read on from these offsets: forget what there was before."""
        self.forget(offsets)
        self._moved.update(offsets)

    def _tell_errors(self) -> None:
        while self._errors:
            self._judge(self._errors.popleft())
        for lost in self._lost.values():  # nothing more comes of that partition until the application goes elsewhere
            raise lost

    def _judge(self, raw: LibraryMessage) -> None:
        """Raise what librdkafka reports, unless it mends itself."""
        error = raw.error()
        assert error is not None
        topic, partition = raw.topic(), raw.partition()
        if error.code() == LibraryError._MAX_POLL_EXCEEDED:
            logger.warning("this consumer took too long over its messages and joins its group again: %s", error.str())
            return
        if error.code() in _UNKNOWN_TOPIC:
            raise TopicNotFoundError(topic or "", self._connection.metadata(self._client).topics)
        if topic and partition is not None and error.code() in _OUT_OF_RANGE:
            key = TopicPartition(topic, partition)
            if self._moved.get(key, raw.offset()) != raw.offset():
                return  # it is of where the application was before
            offsets = Admin(self._connection).offset_ranges([key])[key]
            self._lost[key] = OffsetOutOfRangeError(
                topic, partition, raw.offset() or 0, offsets.start_offset, offsets.end_offset
            )
            return
        if topic or error.fatal() or error.code() >= 0:
            raise self._connection.error(
                error, f"{topic}-{partition} at offset {raw.offset()}" if topic else "consuming"
            )
        logger.debug("librdkafka goes on after: %s", error.str())
