"""An immutable snapshot of the cluster. A change replaces it as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from skylog.cluster.store import Value

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A live broker and the address it advertises.

    `incarnation` counts the starts of a broker in a cluster, `directory_id` is that of its data directory. A broker
    that `is_stopping` keeps serving, but is elected leader only where there is no other replica in sync. `host` and
    `port` are for other brokers. `endpoints` has the address of each listener by its name; it is empty if there is
    only one, which has neither TLS nor logins.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    version: int = 0
    incarnation: int = 0
    is_stopping: bool = False
    directory_id: str = ""
    endpoints: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def at(self, listener: str) -> BrokerImage | None:
        """Return this broker with the address of one of its listeners, None if it does not have that listener."""
        if not self.endpoints:
            return self
        address = self.endpoints.get(listener)
        return None if address is None else replace(self, host=address[0], port=address[1])

    def to_value(self) -> Value:
        value: Value = {
            "host": self.host,
            "port": self.port,
            "rack": self.rack,
            "incarnation": self.incarnation,
            "stopping": self.is_stopping,
            "directory_id": self.directory_id,
        }
        if self.endpoints:
            value["endpoints"] = {name: list(address) for name, address in self.endpoints.items()}
        return value

    @classmethod
    def from_value(cls, node_id: int, value: Value, version: int) -> BrokerImage:
        return cls(
            node_id,
            value["host"],
            value["port"],
            value["rack"],
            version,
            value["incarnation"],
            value["stopping"],
            value["directory_id"],
            {name: (host, port) for name, (host, port) in value.get("endpoints", {}).items()},
        )


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """The leader of a partition, its epoch, and the replicas.

    `leader` is NO_LEADER while the partition is offline. Every leader has an epoch of its own, larger than the last.
    The replicas in `in_sync_replicas` have every committed record. So do those in `eligible_replicas` (KIP-966): they
    left the in-sync set when it had fewer than `min.insync.replicas` members, so that nothing was committed since.
    Two more help an unclean election: those in `resigned` were complete until they crashed, and those in `emptied` have
    lost their logs and were not in sync since.
    During a reassignment `replicas` has both the old and the new ones: `adding` are not in sync yet, `removing` leave
    when all of `adding` are.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    eligible_replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    resigned: tuple[int, ...] = ()
    emptied: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def complete_replicas(self) -> tuple[int, ...]:
        """The replicas that have every committed record. A partition without a leader waits for one of them."""
        return (*self.in_sync_replicas, *self.eligible_replicas)

    def to_value(self) -> Value:
        value: Value = {
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "replicas": list(self.replicas),
            "in_sync_replicas": list(self.in_sync_replicas),
        }
        rare = {
            "eligible_replicas": self.eligible_replicas,
            "adding": self.adding,
            "removing": self.removing,
            "resigned": self.resigned,
            "emptied": self.emptied,
        }
        return value | {key: list(ids) for key, ids in rare.items() if ids}

    @classmethod
    def from_value(cls, value: Value) -> PartitionImage:
        return cls(
            value["leader"],
            value["leader_epoch"],
            tuple(value["replicas"]),
            tuple(value["in_sync_replicas"]),
            tuple(value.get("eligible_replicas", ())),
            tuple(value.get("adding", ())),
            tuple(value.get("removing", ())),
            tuple(value.get("resigned", ())),
            tuple(value.get("emptied", ())),
        )


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. Its id is random and never changes; a topic that is deleted and created again has another id.

    `has_id_entry` tells whether the store also has an entry for the id. The topics of standalone brokers and of former
    versions of skylog have none.
    """

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    version: int
    has_id_entry: bool = False

    def to_value(self) -> Value:
        value: Value = {
            "id": str(self.topic_id),
            "configs": dict(self.configs),
            "partitions": [each.to_value() for each in self.partitions],
        }
        return value | {"id_entry": True} if self.has_id_entry else value

    @classmethod
    def from_value(cls, name: str, value: Value, version: int) -> TopicImage:
        partitions = tuple(PartitionImage.from_value(each) for each in value["partitions"])
        return cls(name, UUID(value["id"]), partitions, value["configs"], version, value.get("id_entry", False))


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Brokers and topics. `names` maps topic ids to names."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerImage]
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    names: Mapping[UUID, str] = field(default_factory=dict)

    @property
    def live_controller_id(self) -> int:
        """The controller if it is one of the live brokers, otherwise NO_CONTROLLER."""
        return self.controller_id if self.controller_id in self.brokers else NO_CONTROLLER

    def with_topics(self, topics: Mapping[str, TopicImage]) -> ClusterImage:
        names = {topic.topic_id: name for name, topic in topics.items()}
        return ClusterImage(self.cluster_id, self.controller_id, self.brokers, topics, names)
