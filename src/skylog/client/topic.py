"""The description of a topic: partitions, offsets, configuration."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition and the brokers that hold it. `leader` is -1 while there is none."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its partitions, sorted by number."""

    name: str
    partitions: tuple[Partition, ...]

    @property
    def is_internal(self) -> bool:
        """Whether the topic holds data of the cluster or of skylog itself."""
        return self.name.startswith(("__", "_skylog_"))

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition.index) for partition in self.partitions]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets that a partition holds: from `start_offset` up to `end_offset`, which is exclusive."""

    start_offset: int
    end_offset: int

    def __len__(self) -> int:
        return max(self.end_offset - self.start_offset, 0)


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One key of a topic's configuration with its effective value. `source` is the level at which it is set."""

    name: str
    value: str | None
    source: str

    @property
    def is_default(self) -> bool:
        return self.source == "default"
