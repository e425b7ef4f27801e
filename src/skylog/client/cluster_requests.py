"""The requests of ClusterAdmin, over librdkafka where it can send them, and their retries."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from skylog.client.cluster import ClusterBroker, Reassignment
from skylog.client.connection import Connection
from skylog.client.errors import BrokerUnreachableError
from skylog.cluster.image import NO_CONTROLLER
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition

if TYPE_CHECKING:
    from skylog.client.peer_requests import ClusterNodes
    from skylog.protocol.schema import Message

T = TypeVar("T")

RETRY_S: Final = 0.1
SHORT_TIMEOUT_S: Final = 5.0
"""For what a result can do without."""


class ClusterRequests:
    """Sends requests to a cluster. Raises BrokerUnreachableError and KafkaError.

    `peer_requests` is imported where it is used, because most commands do without.
    """

    def __init__(self, connection: Connection, client: AdminClient) -> None:
        self._connection = connection
        self._client = client

    # -- metadata

    def metadata(self) -> Any:
        """Return the library's ClusterMetadata. Another broker may know more, or less."""
        return self._connection.metadata(self._client)

    def rows(self) -> dict[TopicPartition, Any]:
        """Return the library's metadata of each partition."""
        return {
            TopicPartition(name, index): row
            for name, topic in self.metadata().topics.items()
            for index, row in topic.partitions.items()
        }

    def brokers(self) -> list[ClusterBroker]:
        return brokers_of(self.metadata())

    def nodes(self, brokers: Iterable[ClusterBroker]) -> ClusterNodes | None:
        """Return the controller and the racks, without waiting long; None if no broker answers.

        The library's metadata have no racks, and name the broker that administers, which need not be the controller.
        """
        from skylog.client.peer_requests import ClusterNodes, describe_cluster

        if self._connection.is_plaintext:
            return describe_cluster(brokers, SHORT_TIMEOUT_S, None)
        try:
            found = self._client.describe_cluster(request_timeout=SHORT_TIMEOUT_S).result(SHORT_TIMEOUT_S + 1)
        except (KafkaException, TimeoutError):
            return None
        controller_id = NO_CONTROLLER if found.controller is None else found.controller.id
        return ClusterNodes(controller_id, {each.id: each.rack for each in found.nodes})

    def ask_any(self, request: Message, doing: str) -> Any:
        """Return the response of one of the brokers, over a connection of our own. Raises KafkaError and PeerError."""
        from skylog.client.peer_requests import ask, check_response

        response = ask(self.brokers()[0], request, self._connection.timeout_s, self._connection.peer_security())
        check_response(response, doing)
        return response

    # -- leaders and settings

    def elect(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Return the errors of the partitions, None for those elected, without those that need no election."""
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        asked = None if partitions is None else [LibraryPartition(*key) for key in partitions]
        found = self._retry(partial(self._elect, kind, asked))
        outcome = {TopicPartition(key.topic, key.partition): error for key, error in found.items()}
        return {key: error for key, error in outcome.items() if error is None or _was_needed(error)}

    def _elect(
        self, kind: ElectionType, partitions: list[LibraryPartition] | None
    ) -> dict[LibraryPartition, KafkaError | None]:
        future = self._client.elect_leaders(kind, partitions)  # confluent-kafka 2.16 rejects a timeout
        found = self._result(future, "cannot elect leaders")
        return {key: None if error is None else _error(error) for key, error in found.items()}

    def configure(self, kind: ResourceType, name: str, changes: Mapping[str, str | None]) -> None:
        """Set keys of a topic or a broker; None removes them."""
        entries = [_entry(key, value) for key, value in changes.items()]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        futures = self._client.incremental_alter_configs([resource], request_timeout=self._connection.timeout_s)
        self._result(futures[resource], f"cannot change the settings of {kind.name.lower()} {name}")

    def _result(self, future: Future[Any], doing: str) -> Any:
        try:
            return future.result(self._connection.timeout_s + 1)
        except KafkaException as error:
            raise self._connection.error(error, doing) from error
        except TimeoutError:
            reason = f"no answer in {self._connection.timeout_s:g} s"
            raise BrokerUnreachableError(self._connection.bootstrap, reason) from None

    # -- reassignments

    def reassignments(self) -> list[Reassignment]:
        from skylog.client.peer_requests import list_reassignments

        security = self._connection.peer_security()
        return self._retry(lambda: list_reassignments(self._controller(), self._connection.timeout_s, security))

    def try_reassignments(self) -> tuple[list[Reassignment], str | None]:
        """Return the reassignments, or the reason why they are not known, without waiting long."""
        from skylog.client.peer_requests import list_reassignments

        try:
            security = self._connection.peer_security()
            return list_reassignments(self._controller(), SHORT_TIMEOUT_S, security), None
        except BrokerUnreachableError:
            raise
        except SkylogError as error:
            return [], str(error)

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError]:
        """Begin reassignments, or cancel those with the target None. Return the partitions that were rejected."""
        from skylog.client.peer_requests import alter_reassignments

        security = self._connection.peer_security()
        return self._retry(
            lambda: alter_reassignments(self._controller(), targets, self._connection.timeout_s, security)
        )

    def replica_sizes(self, partitions: Collection[TopicPartition]) -> dict[tuple[TopicPartition, int], int]:
        """Return the size of replicas by partition and broker, without those on brokers that do not answer."""
        from skylog.client.peer_requests import replica_sizes

        return replica_sizes(self.brokers(), partitions, SHORT_TIMEOUT_S, self._connection.peer_security())

    def eligible_replicas(self, topics: Collection[str]) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the replicas that may lead although they are not in sync, of some topics."""
        from skylog.client.peer_requests import eligible_replicas

        return eligible_replicas(self.brokers(), topics, SHORT_TIMEOUT_S, self._connection.peer_security())

    def _controller(self) -> ClusterBroker:
        metadata = self.metadata()
        for broker in brokers_of(metadata):
            if broker.node_id == metadata.controller_id:
                return broker
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")

    # -- retries

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Retry while the cluster has no controller, and when it changes or fails."""
        from skylog.net.peer import PeerError

        deadline = time.monotonic() + self._connection.timeout_s
        while True:
            try:
                return attempt()
            except (KafkaError, PeerError) as error:
                is_lasting = isinstance(error, KafkaError) and error.code is not ErrorCode.NOT_CONTROLLER
                if is_lasting or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_S)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the brokers know of a change. Raises REQUEST_TIMED_OUT."""
        deadline = time.monotonic() + self._connection.timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{what} did not take effect in time")
            time.sleep(RETRY_S)


def brokers_of(metadata: Any) -> list[ClusterBroker]:
    """Return the live brokers, without their racks."""
    rows = [ClusterBroker(each.id, each.host, each.port, None) for each in metadata.brokers.values()]
    return sorted(rows, key=lambda each: each.node_id)


def _was_needed(error: KafkaError) -> bool:
    return error.code is not ErrorCode.ELECTION_NOT_NEEDED


def _error(problem: Any) -> KafkaError:
    known = problem.code() in ErrorCode._value2member_map_
    return KafkaError(ErrorCode(problem.code()) if known else ErrorCode.UNKNOWN_SERVER_ERROR, problem.str())


def _entry(key: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(key, value or "", incremental_operation=operation)
