"""Administration of single brokers: their configuration, also at run time, and their log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from skylog.client.cluster import ClusterBroker
from skylog.client.cluster_requests import SHORT_TIMEOUT_S, ClusterRequests
from skylog.client.connection import Connection
from skylog.errors import ErrorCode, KafkaError, SkylogError

ALL_BROKERS: Final = ""
_BROKER: Final = 4  # in Kafka's numbers of resource types
_SET, _DELETE = 0, 1  # operations of IncrementalAlterConfigs
_SOURCES: Final = {
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "this broker, at run time",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "all brokers, at run time",
    ConfigSource.STATIC_BROKER_CONFIG.value: "at the start",
    ConfigSource.DEFAULT_CONFIG.value: "default",
}


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """One key of a broker's configuration. `source` says in words where its value comes from."""

    name: str
    value: str | None
    source: str
    is_read_only: bool

    @property
    def is_default(self) -> bool:
        return self.source == "default"

    @property
    def is_dynamic(self) -> bool:
        """Whether the value was set at run time."""
        return self.source.endswith("at run time")


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A directory with logs: the bytes of each topic in it, and of the disk, -1 if the broker does not tell."""

    path: str
    topics: Mapping[str, int]
    total_bytes: int
    free_bytes: int
    error: str | None

    @property
    def size_bytes(self) -> int:
        return sum(self.topics.values())


class Brokers:
    """Administers the brokers of one cluster. Raises BrokerUnreachableError and KafkaError."""

    def __init__(self, connection: Connection, client: AdminClient) -> None:
        self._connection = connection
        self._client = client
        self._requests = ClusterRequests(connection, client)

    def find(self, node_id: int) -> ClusterBroker:
        """Return a live broker. Raises BROKER_NOT_AVAILABLE."""
        for broker in self._requests.brokers():
            if broker.node_id == node_id:
                return broker
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not live")

    def configs(self, node_id: int) -> list[BrokerConfig]:
        """Return all keys of a broker's configuration, sorted by name."""
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        futures = self._client.describe_configs([resource], request_timeout=self._connection.timeout_s)
        try:
            entries: Mapping[str, Any] = futures[resource].result(self._connection.timeout_s + 1)
        except KafkaException as error:
            raise self._connection.error(error, f"cannot read the settings of broker {node_id}") from error
        return [
            BrokerConfig(key, entry.value, _SOURCES.get(entry.source, "unknown"), bool(entry.is_read_only))
            for key, entry in sorted(entries.items())
        ]

    def alter_config(self, name: str, key: str, value: str | None) -> None:
        """Set a key of a broker, or of ALL_BROKERS, at run time; None removes that setting."""
        if name != ALL_BROKERS:
            self._requests.configure(ResourceType.BROKER, name, {key: value})
            return
        from skylog.client.peer_requests import ask  # librdkafka rejects an empty name
        from skylog.protocol import incremental_alter_configs as protocol

        change = protocol.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        resource = protocol.AlterConfigsResource(resource_type=_BROKER, resource_name=name, configs=[change])
        request = protocol.IncrementalAlterConfigsRequest(resources=[resource])
        security = self._connection.peer_security()
        for row in ask(self._requests.brokers()[0], request, self._connection.timeout_s, security).responses:
            if row.error_code:
                code = ErrorCode(row.error_code)
                raise KafkaError(code, f"cannot change the settings of all brokers: {row.error_message or code.name}")

    def log_directories(self, broker: ClusterBroker) -> list[LogDirectory]:
        """Return the directories of a broker."""
        from skylog.client.peer_requests import ask
        from skylog.protocol.describe_log_dirs import DescribeLogDirsRequest

        security = self._connection.peer_security()
        return _directories(ask(broker, DescribeLogDirsRequest(topics=None), SHORT_TIMEOUT_S, security))

    def all_log_directories(self, brokers: Iterable[ClusterBroker]) -> dict[int, list[LogDirectory]]:
        """Return the directories of several brokers by id, without the brokers that do not answer or refuse to."""
        from skylog.client.peer_requests import ask_each
        from skylog.protocol.describe_log_dirs import DescribeLogDirsRequest

        security = self._connection.peer_security()
        answers = ask_each(brokers, DescribeLogDirsRequest(topics=None), SHORT_TIMEOUT_S, security)
        return {
            node_id: _directories(answer) for node_id, answer in answers.items() if not isinstance(answer, SkylogError)
        }


def _directories(response: Any) -> list[LogDirectory]:
    return [
        LogDirectory(
            each.log_dir,
            {topic.name: sum(row.partition_size for row in topic.partitions) for topic in each.topics},
            each.total_bytes,
            each.usable_bytes,
            ErrorCode(each.error_code).name if each.error_code else None,
        )
        for each in response.results
    ]
