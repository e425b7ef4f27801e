"""Who leads which partition, and the few questions a writer has for a cluster. One blocking connection per broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skylog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from skylog.spark.wire import BrokerConnection, ConnectionLostError, any_broker

logger = logging.getLogger(__name__)

AGAIN_S: Final = 0.1
_LATEST: Final = -1
_METADATA_VERSION: Final = 9
_LIST_OFFSETS_VERSION: Final = 6
_INIT_PRODUCER_ID_VERSION: Final = 2


class ProducerId(NamedTuple):
    producer_id: int
    epoch: int


class Leaders:
    """The brokers of a cluster, as far as they are needed. Serves one thread.

    `close` forgets everything; the next question begins with the bootstrap servers again. What is temporarily wrong is
    raised as ConnectionLostError or a retriable KafkaError: when to give up is for the caller to say.
    """

    def __init__(self, bootstrap: str, request_timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._request_timeout_s = request_timeout_s
        self._first: BrokerConnection | None = None
        self._connections: dict[int, BrokerConnection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        if self._first is not None:
            self._first.close()
        self._first = None
        self._connections.clear()
        self._leaders.clear()

    def __enter__(self) -> Leaders:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def partition_count(self, topic: str, patience_s: float) -> int:
        """Asking for a topic creates it, where the cluster does that. Raises KafkaError where there is none."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                (answer,) = self._metadata([topic])
                if not answer.error_code:
                    return len(answer.partitions)
                code = ErrorCode(answer.error_code)
                raise KafkaError(
                    code,
                    f"cannot write to topic '{topic}': {code.name}; create it with: skylog topics create {topic}",
                )
            except (ConnectionLostError, KafkaError) as error:
                self.wait_out(error, deadline)

    def wait_out(self, error: SkylogError, deadline: float, also: Container[ErrorCode] = ()) -> None:
        """Forget the connections and wait a little before another attempt.

        Raises `error` after the deadline, and where it does not pass by itself, unless its code is among `also`.
        """
        self.close()
        passes = not isinstance(error, KafkaError) or error.code.retriable or error.code in also
        if not passes or time.monotonic() > deadline:
            raise error
        logger.info("tried again: %s", error)
        time.sleep(AGAIN_S)

    def learn(self, topics: Iterable[str]) -> None:
        """Ask who leads the partitions of these topics."""
        for topic in self._metadata(sorted(topics)):
            for row in topic.partitions:
                self._leaders[TopicPartition(topic.name or "", row.partition_index)] = row.leader_id

    def leader(self, partition: TopicPartition) -> int:
        """The number of the broker; `learn` must have been called."""
        number = self._leaders.get(partition, -1)
        if number not in self._addresses:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader, or is not there any more")
        return number

    def connection(self, broker: int) -> BrokerConnection:
        if broker not in self._connections:
            self._connections[broker] = BrokerConnection(*self._addresses[broker], self._request_timeout_s)
        return self._connections[broker]

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        by_broker: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
        for key in partitions:
            rows = by_broker.setdefault(self.leader(key), {}).setdefault(key.topic, [])
            rows.append(ListOffsetsPartition(partition_index=key.partition, timestamp=_LATEST))
        found = {}
        for broker, topics in by_broker.items():
            connection = self.connection(broker)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=t, partitions=p) for t, p in topics.items()])
            version = connection.version(ListOffsetsRequest, _LIST_OFFSETS_VERSION)
            for topic in connection.ask(request, version, ListOffsetsResponse).topics:
                for row in topic.partitions:
                    key = TopicPartition(topic.name, row.partition_index)
                    check(row.error_code, f"the end of {key} cannot be asked for")
                    found[key] = row.offset
        return found

    def new_producer_id(self) -> ProducerId:
        connection = self._any()
        version = connection.version(InitProducerIdRequest, _INIT_PRODUCER_ID_VERSION)
        answer = connection.ask(InitProducerIdRequest(transaction_timeout_ms=60_000), version, InitProducerIdResponse)
        check(answer.error_code, "no producer id can be had")
        return ProducerId(answer.producer_id, answer.producer_epoch)

    def _metadata(self, topics: Iterable[str]) -> list[MetadataResponseTopic]:
        connection = self._any()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
        answer = connection.ask(request, connection.version(MetadataRequest, _METADATA_VERSION), MetadataResponse)
        self._addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}
        return answer.topics

    def _any(self) -> BrokerConnection:
        if self._first is None:
            self._first = any_broker(self._bootstrap, self._request_timeout_s)
        return self._first


def check(error_code: int, what: str) -> None:
    """Raise KafkaError unless `error_code` is none."""
    if error_code:
        code = ErrorCode(error_code)
        raise KafkaError(code, f"{what}: {code.name}")
