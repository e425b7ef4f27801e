"""Requests that librdkafka has no API for: reassignments, sizes of replicas, racks, transactions.

They go over a connection of their own, with TLS and a login if `security` says so, to any broker that speaks Kafka's
protocol. The functions block; a running event loop in the same thread does not matter.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from skylog.client.cluster import ClusterBroker, Reassignment
from skylog.cluster.image import NO_CONTROLLER
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.net.peer import Peer, PeerError, PeerSecurity
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skylog.protocol.describe_cluster import DescribeClusterRequest
from skylog.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from skylog.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from skylog.protocol.list_partition_reassignments import ListPartitionReassignmentsRequest
from skylog.protocol.schema import Message

T = TypeVar("T")

Replica = tuple[TopicPartition, int]
"""A partition and the id of a broker."""

CLIENT_ID: Final = "skylog"


class ClusterNodes(NamedTuple):
    """The controller, -1 if there is none, and the racks of the brokers."""

    controller_id: int
    racks: dict[int, str | None]


def describe_cluster(
    brokers: Iterable[ClusterBroker], timeout_s: float, security: PeerSecurity | None
) -> ClusterNodes | None:
    """Return what the first broker that knows a controller says, otherwise the last that answers; None if none does."""
    found = None
    for broker in brokers:
        with suppress(PeerError):
            response = wait_for(_ask(broker, DescribeClusterRequest(), timeout_s, security))
            found = ClusterNodes(response.controller_id, {each.broker_id: each.rack for each in response.brokers})
            if found.controller_id != NO_CONTROLLER:
                break
    return found


def list_reassignments(
    controller: ClusterBroker, timeout_s: float, security: PeerSecurity | None
) -> list[Reassignment]:
    """Return the reassignments under way, sorted by partition. Raises PeerError and KafkaError."""
    request = ListPartitionReassignmentsRequest(timeout_ms=int(timeout_s * 1000))
    response = wait_for(_ask(controller, request, timeout_s, security))
    check_response(response, "cannot list the reassignments")
    found = [
        Reassignment(
            TopicPartition(topic.name, row.partition_index),
            tuple(row.replicas),
            tuple(row.adding_replicas),
            tuple(row.removing_replicas),
        )
        for topic in response.topics
        for row in topic.partitions
    ]
    return sorted(found, key=lambda each: each.partition)


def alter_reassignments(
    controller: ClusterBroker,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    timeout_s: float,
    security: PeerSecurity | None,
) -> dict[TopicPartition, KafkaError]:
    """Begin reassignments, or cancel those with the target None. Return the partitions that were rejected."""
    rows: defaultdict[str, list[ReassignablePartition]] = defaultdict(list)
    for key, replicas in targets.items():
        wanted = None if replicas is None else list(replicas)
        rows[key.topic].append(ReassignablePartition(partition_index=key.partition, replicas=wanted))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(timeout_s * 1000),
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in rows.items()],
    )
    response = wait_for(_ask(controller, request, timeout_s, security))
    check_response(response, "cannot change the reassignments")
    return {
        TopicPartition(topic.name, row.partition_index): _error(row)
        for topic in response.responses
        for row in topic.partitions
        if row.error_code
    }


def eligible_replicas(
    brokers: Iterable[ClusterBroker], topics: Collection[str], timeout_s: float, security: PeerSecurity | None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas that may lead although they are not in sync (KIP-966); none if no broker tells."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(topics)])
    for broker in brokers:
        with suppress(SkylogError):
            response = wait_for(_ask(broker, request, timeout_s, security))
            return {
                TopicPartition(topic.name, row.partition_index): tuple(row.eligible_leader_replicas or ())
                for topic in response.topics
                for row in topic.partitions
            }
    return {}


def replica_sizes(
    brokers: Iterable[ClusterBroker],
    partitions: Collection[TopicPartition],
    timeout_s: float,
    security: PeerSecurity | None,
) -> dict[Replica, int]:
    """Return the size in bytes of each replica of the partitions, without those on brokers that do not answer."""
    return wait_for(_replica_sizes(brokers, partitions, timeout_s, security))


async def _replica_sizes(
    brokers: Iterable[ClusterBroker],
    partitions: Collection[TopicPartition],
    timeout_s: float,
    security: PeerSecurity | None,
) -> dict[Replica, int]:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for key in partitions:
        numbers[key.topic].append(key.partition)
    topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in numbers.items()]
    asked = list(brokers)
    requests = [_ask(broker, DescribeLogDirsRequest(topics=topics), timeout_s, security) for broker in asked]
    sizes: dict[Replica, int] = {}
    for broker, response in zip(asked, await asyncio.gather(*requests, return_exceptions=True), strict=True):
        if isinstance(response, SkylogError):
            continue
        if isinstance(response, BaseException):
            raise response
        for directory in response.results:
            for topic in directory.topics:
                for row in topic.partitions:
                    sizes[TopicPartition(topic.name, row.partition_index), broker.node_id] = row.partition_size
    return sizes


def ask(
    broker: ClusterBroker,
    request: Message,
    timeout_s: float,
    security: PeerSecurity | None,
    version: int | None = None,
) -> Any:
    """Return a broker's response, by default in the newest common version. Raises PeerError and KafkaError."""
    return wait_for(_ask(broker, request, timeout_s, security, version))


def ask_all(
    brokers: Iterable[ClusterBroker], request: Message, timeout_s: float, security: PeerSecurity | None
) -> list[Any]:
    """Return the responses of several brokers to the same request. Raises the first PeerError or KafkaError."""

    async def gather() -> list[Any]:
        return await asyncio.gather(*(_ask(broker, request, timeout_s, security) for broker in brokers))

    return wait_for(gather())


def ask_some(
    brokers: Iterable[ClusterBroker], request: Message, timeout_s: float, security: PeerSecurity | None
) -> tuple[list[Any], list[SkylogError]]:
    """Return the responses of the brokers that answer, and the errors of the others."""
    outcomes = ask_each(brokers, request, timeout_s, security).values()
    failures = [outcome for outcome in outcomes if isinstance(outcome, SkylogError)]
    return [outcome for outcome in outcomes if not isinstance(outcome, SkylogError)], failures


def ask_each(
    brokers: Iterable[ClusterBroker], request: Message, timeout_s: float, security: PeerSecurity | None
) -> dict[int, Any]:
    """Return by id the response of each broker, or its SkylogError."""
    asked = list(brokers)

    async def gather() -> list[Any]:
        requests = (_ask(broker, request, timeout_s, security) for broker in asked)
        return await asyncio.gather(*requests, return_exceptions=True)

    outcomes = {broker.node_id: outcome for broker, outcome in zip(asked, wait_for(gather()), strict=True)}
    for outcome in outcomes.values():
        if isinstance(outcome, BaseException) and not isinstance(outcome, SkylogError):
            raise outcome
    return outcomes


async def _ask(
    broker: ClusterBroker,
    request: Message,
    timeout_s: float,
    security: PeerSecurity | None,
    version: int | None = None,
) -> Any:
    peer = await Peer.connect(broker.host, broker.port, client_id=CLIENT_ID, timeout_s=timeout_s, security=security)
    try:
        return await peer.ask(request, _version(peer, request.api_key) if version is None else version)
    finally:
        peer.close()


def _version(peer: Peer, api_key: int) -> int:
    try:
        return peer.version_of(api_key)
    except PeerError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error


def check_response(response: Any, doing: str) -> None:
    """Raise the KafkaError of a response, or of one of its rows, if it has one. `doing` begins its message."""
    if getattr(response, "error_code", 0):
        error = _error(response)
        raise KafkaError(error.code, f"{doing}: {error.message}")


def _error(row: Any) -> KafkaError:
    known = row.error_code in ErrorCode._value2member_map_
    code = ErrorCode(row.error_code) if known else ErrorCode.UNKNOWN_SERVER_ERROR
    return KafkaError(code, row.error_message or code.name)


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, whether or not an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:  # a loop cannot run inside another one
        return thread.submit(asyncio.run, coroutine).result()
