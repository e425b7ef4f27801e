"""Sends messages for `skylog produce` and tracks their delivery."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException

from skylog.cli.produce.input_format import Arguments
from skylog.client import Connection
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import check_topic_name

_REASON_S: Final = 1.0


class Sender:
    """Passes messages to librdkafka and counts them. `failure` is the first delivery error."""

    def __init__(self, connection: Connection, topic: str, settings: Mapping[str, Any]) -> None:
        self.failure: SkylogError | None = None
        self.accepted_count = self.accepted_bytes = self.failed_count = 0
        self._topic = topic
        self._connection = connection
        self._producer = connection.producer(
            {
                "partitioner": "murmur2_random",  # chooses the same partition for a key as Java clients
                "topic.metadata.propagation.max.ms": 10_000,
                "queue.buffering.max.kbytes": 256 * 1024,
                "delivery.report.only.error": True,
                "on_delivery": self._on_delivery,
                **settings,
            }
        )
        self._known = connection.metadata(self._producer).topics.get(topic)

    def check_partition(self, partition: int) -> None:
        """Raise SkylogError if the topic exists and has no such partition."""
        if self._known is not None and partition >= len(self._known.partitions):
            count = len(self._known.partitions)
            raise SkylogError(f"topic '{self._topic}' has no partition {partition}: it has {count}, numbered from 0")

    def send(self, message: Arguments) -> None:
        """Queue a message; blocks while the queue is full. Raises SkylogError if it cannot be sent."""
        while True:
            try:
                self._producer.produce(self._topic, **message)
                break
            except BufferError:
                self._wait_for(self._producer.poll, 0.1)
                if self.failure is not None:
                    raise self.failure from None
            except KafkaException as error:
                if error.args[0].code() == LibraryError._FATAL:  # its reason comes with an event
                    self._wait_for(self._producer.poll, _REASON_S)
                raise self._explain(error.args[0], message.get("partition")) from error
        self.accepted_count += 1
        self.accepted_bytes += len(message["value"] or b"") + len(message.get("key") or b"")

    def poll(self) -> None:
        """Process delivery reports. Raises the first failure."""
        self._wait_for(self._producer.poll, 0)
        if self.failure is not None:
            raise self.failure

    def finish(self, timeout_s: float) -> int:
        """Wait until all messages are delivered or have failed. Returns the number delivered."""
        waiting = self._wait_for(self._producer.flush, timeout_s)
        return self.accepted_count - self.failed_count - waiting

    def _wait_for(self, work: Callable[[float], int], timeout_s: float) -> int:
        """Run what calls `_on_delivery`. Raises SkylogError if this producer cannot go on, as without a right."""
        try:
            return work(timeout_s)
        except KafkaException as error:
            raise self._explain(error.args[0], -1) from error
        except SystemError as error:  # confluent-kafka calls `_on_delivery` with the exception of a fatal error pending
            reason = error.__cause__
            if isinstance(reason, KafkaException):
                raise self._explain(reason.args[0], -1) from error
            if self.failure is not None:
                raise self.failure from error
            raise SkylogError(
                f"topic '{self._topic}': a fatal error; run the command again to see its reason"
            ) from error

    def _on_delivery(self, error: LibraryError | None, message: Any) -> None:
        if error is None:
            return
        self.failed_count += 1
        if self.failure is None:
            self.failure = self._explain(error, message.partition())  # None if there is no metadata of the topic

    def _explain(self, error: LibraryError, partition: int | None) -> SkylogError:
        try:
            check_topic_name(self._topic)  # librdkafka may also report such a topic as unknown
        except KafkaError as invalid:
            return invalid
        if error.code() in (LibraryError._UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return SkylogError(
                f"topic '{self._topic}' does not exist, and the cluster does not create topics automatically; "
                f"create it with: skylog topics create {self._topic}"
            )
        if error.code() in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return SkylogError(
                f"topic '{self._topic}': this user may not write to it, or there is no such topic and the user may not "
                f"create it; an administrator gives the rights with: "
                f"skylog acls add USER write create --topic {self._topic}"
            )
        if error.code() == ErrorCode.POLICY_VIOLATION:
            return SkylogError(
                f"topic '{self._topic}' refuses messages: it may be a mirror of another cluster; "
                f"see: skylog topics describe {self._topic}"
            )
        if error.code() == LibraryError._UNKNOWN_PARTITION:
            return SkylogError(
                f"topic '{self._topic}' has no partition {partition}; see: skylog topics describe {self._topic}"
            )
        where = f"topic '{self._topic}'" if partition is None or partition < 0 else f"{self._topic}-{partition}"
        return self._connection.error(error, where)
