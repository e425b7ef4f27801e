"""The topics of the cluster as a group sees them: ids, partition counts and replicas by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID


class Partition(Protocol):
    """A partition of the cluster image."""

    @property
    def replicas(self) -> Sequence[int]: ...


class Topic(Protocol):
    """A topic of the cluster image."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Sequence[Partition]: ...


Topics = Mapping[str, Topic]
"""All topics by name. A change replaces the mapping as a whole."""

NO_TOPICS: Final[Topics] = {}

BrokerRacks = Mapping[int, str]
"""The racks of brokers by id. The shell keeps it up to date."""

NO_BROKER_RACKS: Final[BrokerRacks] = {}


def racks_of(topic: Topic, racks: BrokerRacks) -> tuple[frozenset[str], ...]:
    """Return the racks that each partition of a topic has replicas in."""
    return tuple(frozenset(racks[each] for each in row.replicas if each in racks) for row in topic.partitions)


def metadata_hash(names: Iterable[str], topics: Topics, racks: BrokerRacks = NO_BROKER_RACKS) -> int:
    """Return a hash of what an assignment of these topics depends on: their ids, partition counts and racks.

    It is stored with the group epoch, as from Kafka 4.1 on (KIP-1101). The value itself is not Kafka's.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            digest.update(b"%b %b %d\n" % (name.encode(), topic.topic_id.bytes, len(topic.partitions)))
            if racks:
                digest.update(repr([sorted(each) for each in racks_of(topic, racks)]).encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
