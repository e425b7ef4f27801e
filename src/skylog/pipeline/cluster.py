"""How to reach a cluster: one description for sources, sinks, administration and status reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from skylog.client import DEFAULT_BOOTSTRAP, Admin, Connection, Producer
from skylog.client.kafka_settings import properties_of_environment
from skylog.spark.kafka_settings import library_settings
from skylog.spark.reading.options import BOOTSTRAP, KAFKA_PREFIX
from skylog.spark.topics import ensure_topic

_PROTOCOL: Final = f"{KAFKA_PREFIX}security.protocol"
_CONNECTING: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.address.", "client.")


@dataclass(frozen=True)
class Cluster:
    """The address of a cluster, and the `kafka.*` options that its connections need, with the names of Kafka's clients.

        Cluster("10.0.0.1:9093", {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "ca.pem"})

    Other options of the data source, such as failOnDataLoss, may be among them. They apply to reads. Without
    kafka.security.protocol, the file that the environment variable SKYLOG_CONFIG names says how to connect.
    """

    bootstrap: str = DEFAULT_BOOTSTRAP
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster | str | None) -> Cluster:
        """Return a cluster, given by itself or by its address. None is a broker on this machine."""
        if isinstance(cluster, Cluster):
            return cluster
        return cls(cluster or DEFAULT_BOOTSTRAP)

    @property
    def source_options(self) -> dict[str, str]:
        """The options of the data source for reads."""
        return {**self._given, BOOTSTRAP: self.bootstrap}

    @property
    def kafka_options(self) -> dict[str, str]:
        """The options of the data source for writes, and for reads of everything: only how to reach the cluster."""
        return {f"{KAFKA_PREFIX}{key}": value for key, value in self._kafka.items()}

    @property
    def _given(self) -> dict[str, str]:
        """The options, and how to connect from the file that SKYLOG_CONFIG names, unless the options say it."""
        if any(key.lower() == _PROTOCOL for key in self.options):
            return dict(self.options)
        configured = {key: value for key, value in properties_of_environment().items() if key.startswith(_CONNECTING)}
        return {**{f"{KAFKA_PREFIX}{key}": value for key, value in configured.items()}, **self.options}

    @property
    def _kafka(self) -> dict[str, str]:
        given = {**{key.lower(): value for key, value in self._given.items()}, BOOTSTRAP: self.bootstrap}
        return {key.removeprefix(KAFKA_PREFIX): value for key, value in given.items() if key.startswith(KAFKA_PREFIX)}

    @property
    def library_settings(self) -> dict[str, str]:
        """The settings of librdkafka for connections. Raises OptionError for a Java key store."""
        settings = library_settings(self._kafka)
        settings.pop("bootstrap.servers")
        return settings

    def connection(self, timeout_s: float = 30.0) -> Connection:
        return Connection(self.bootstrap, self.library_settings, timeout_s)

    def admin(self) -> Admin:
        return Admin(self.connection())

    def producer(self, settings: Mapping[str, Any] | None = None) -> Producer:
        """Return a producer. `settings` are further settings of librdkafka."""
        return Producer(self.bootstrap, config={**_connecting(self.library_settings), **(settings or {})})

    def ensure_topic(
        self, topic: str, partitions: int | None = None, configs: Mapping[str, str] | None = None, *, like: str = ""
    ) -> bool:
        """Create the topic if it does not exist. Return whether it was created. Raises the errors of Admin.

        Without `partitions`, it gets as many as the topic `like`, or else the default of `skylog.spark.topics`.
        """
        return ensure_topic(self.admin(), topic, partitions, configs, like=like)


def _connecting(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that every client knows. A producer rejects those of consumers."""
    return {key: value for key, value in settings.items() if key.startswith(_CONNECTING)}
