"""Partition leaders, and the other requests of a writer. One blocking connection per broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.protocol.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from skylog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skylog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from skylog.spark.security import PLAINTEXT, Security
from skylog.spark.wire import BrokerConnection, any_broker

logger = logging.getLogger(__name__)

RETRY_DELAY_S: Final = 0.1
_LATEST: Final = -1
_METADATA_VERSION: Final = 9
_LIST_OFFSETS_VERSION: Final = 6
_INIT_PRODUCER_ID_VERSION: Final = 2
_FIND_COORDINATOR_VERSION: Final = 3  # the last one with one key


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates, by its number in the protocol."""

    GROUP = 0
    TRANSACTION = 1


class ProducerId(NamedTuple):
    producer_id: int
    epoch: int


class Leaders:
    """Connections to the brokers of a cluster, opened as needed. For one thread.

    After `close`, the next request starts again from the bootstrap servers. Temporary failures raise
    ConnectionLostError or a retriable KafkaError. The caller decides when to stop retrying.
    """

    def __init__(self, bootstrap: str, request_timeout_s: float, security: Security = PLAINTEXT) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._request_timeout_s = request_timeout_s
        self._first: BrokerConnection | None = None
        self._connections: dict[int, BrokerConnection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        if self._first is not None:
            self._first.close()
        self._first = None
        self._connections.clear()
        self._leaders.clear()
        self._coordinators.clear()

    def __enter__(self) -> Leaders:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe_topic(self, topic: str, *, auto_create: bool) -> MetadataResponseTopic:
        """Return the cluster's answer for a topic. If `auto_create`, brokers may create it."""
        (found,) = self._metadata([topic], auto_create=auto_create)
        return found

    def back_off(self, error: SkylogError, deadline: float, also: Container[ErrorCode] = ()) -> None:
        """Close the connections and wait briefly before the next attempt.

        Raises `error` after the deadline, or if it is not retriable and its code is not in `also`.
        """
        self.close()
        is_retriable = not isinstance(error, KafkaError) or error.code.retriable or error.code in also
        if not is_retriable or time.monotonic() > deadline:
            raise error
        logger.info("retrying after: %s", error)
        time.sleep(RETRY_DELAY_S)

    def refresh(self, topics: Iterable[str]) -> None:
        """Request the leaders of all partitions of these topics."""
        for topic in self._metadata(sorted(topics)):
            for row in topic.partitions:
                self._leaders[TopicPartition(topic.name or "", row.partition_index)] = row.leader_id

    def leader(self, partition: TopicPartition) -> int:
        """Return the id of the leading broker. Call `refresh` first."""
        number = self._leaders.get(partition, -1)
        if number not in self._addresses:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader or no longer exists")
        return number

    def connection(self, broker: int) -> BrokerConnection:
        if broker not in self._connections:
            self._connections[broker] = BrokerConnection(
                *self._addresses[broker], self._request_timeout_s, self._security
            )
        return self._connections[broker]

    def coordinator(self, kind: CoordinatorKind, key: str) -> BrokerConnection:
        """Return a connection to the coordinator of a group or a transactional id."""
        found = self._coordinators.get((kind, key))
        if found is None:
            connection = self._any()
            version = connection.version(FindCoordinatorRequest, _FIND_COORDINATOR_VERSION)
            request = FindCoordinatorRequest(key=key, key_type=kind)
            response = connection.ask(request, version, FindCoordinatorResponse)
            check(response.error_code, f"cannot find the coordinator of '{key}'")
            found = self._coordinators[kind, key] = response.node_id
            self._addresses[found] = (response.host, response.port)
        return self.connection(found)

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
                    check(row.error_code, f"cannot get the end offset of {key}")
                    found[key] = row.offset
        return found

    def new_producer_id(self) -> ProducerId:
        connection = self._any()
        version = connection.version(InitProducerIdRequest, _INIT_PRODUCER_ID_VERSION)
        response = connection.ask(InitProducerIdRequest(transaction_timeout_ms=60_000), version, InitProducerIdResponse)
        check(response.error_code, "cannot get a producer id")
        return ProducerId(response.producer_id, response.producer_epoch)

    def _metadata(self, topics: Iterable[str], *, auto_create: bool = True) -> list[MetadataResponseTopic]:
        connection = self._any()
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=auto_create
        )
        response = connection.ask(request, connection.version(MetadataRequest, _METADATA_VERSION), MetadataResponse)
        self._addresses = {row.node_id: (row.host, row.port) for row in response.brokers}
        return response.topics

    def _any(self) -> BrokerConnection:
        if self._first is None:
            self._first = any_broker(self._bootstrap, self._request_timeout_s, self._security)
        return self._first


def check(error_code: int, what: str) -> None:
    """Raise KafkaError unless `error_code` is NONE."""
    if error_code:
        code = ErrorCode(error_code)
        raise KafkaError(code, f"{what}: {code.name}")
