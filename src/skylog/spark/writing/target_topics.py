"""The topics that a task writes to. Creates a missing topic if the broker allows it, see `skylog.spark.topics`."""

from __future__ import annotations

import time
from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.spark.leaders import Leaders
from skylog.spark.wire import ConnectionLostError
from skylog.spark.writing.write_options import WriteOptions

_NOT_ALLOWED: Final = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)


class TargetTopics:
    """Looks up topics for one task."""

    def __init__(self, leaders: Leaders, options: WriteOptions) -> None:
        self._leaders = leaders
        self._options = options

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions. Creates the topic if it does not exist.

        Raises KafkaError if the topic cannot be created, ConnectionLostError after max.block.ms without a broker.
        """
        deadline = time.monotonic() + self._options.max_block_s
        is_decided, auto_create = False, False
        while True:
            try:
                found = self._leaders.describe_topic(topic, auto_create=auto_create)
                code = ErrorCode(found.error_code)
                if code is ErrorCode.NONE:
                    return len(found.partitions)
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_decided:
                    auto_create = not self._create(topic)
                    is_decided = True
                    continue
                raise KafkaError(
                    code,
                    f"cannot write to topic '{topic}': {code.name}; create it with: skylog topics create {topic}",
                )
            except (ConnectionLostError, KafkaError) as error:
                self._leaders.back_off(error, deadline)

    def _create(self, topic: str) -> bool:
        """Create the topic. Return False if it is left to the broker, which may create it on a Metadata request."""
        from skylog.client import Admin, BrokerUnreachableError  # imports librdkafka, which few tasks need
        from skylog.spark.reading.cluster import UserConnection
        from skylog.spark.topics import creates_topics, ensure_topic

        count = self._options.topic_partitions
        try:
            admin = Admin(UserConnection(self._options.kafka))
            if count is None and not creates_topics(admin):
                return False
            ensure_topic(admin, topic, count)
        except BrokerUnreachableError as error:
            raise ConnectionLostError(str(error)) from error
        except KafkaError as error:
            if error.code in _NOT_ALLOWED and count is None:
                return False
            raise
        return True
