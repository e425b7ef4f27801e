"""The cluster as it is known at one moment: immutable, replaced whole when something changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from skylog.cluster.store import Value


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A broker and the address it tells clients."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Who leads a partition, in which epoch, and who follows."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. Its id is random, stays for its life, and is new when a topic of the same name is created again."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    version: int

    def to_value(self) -> Value:
        return {
            "id": str(self.topic_id),
            "configs": dict(self.configs),
            "partitions": [
                {
                    "leader": each.leader,
                    "leader_epoch": each.leader_epoch,
                    "replicas": list(each.replicas),
                    "in_sync_replicas": list(each.in_sync_replicas),
                }
                for each in self.partitions
            ],
        }

    @classmethod
    def from_value(cls, name: str, value: Value, version: int) -> TopicImage:
        partitions = tuple(
            PartitionImage(
                each["leader"], each["leader_epoch"], tuple(each["replicas"]), tuple(each["in_sync_replicas"])
            )
            for each in value["partitions"]
        )
        return cls(name, UUID(value["id"]), partitions, value["configs"], version)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Brokers and topics. `names` finds a topic by its id."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerImage]
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    names: Mapping[UUID, str] = field(default_factory=dict)

    def with_topics(self, topics: Mapping[str, TopicImage]) -> ClusterImage:
        names = {topic.topic_id: name for name, topic in topics.items()}
        return ClusterImage(self.cluster_id, self.controller_id, self.brokers, topics, names)
