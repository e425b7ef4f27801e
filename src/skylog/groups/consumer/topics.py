"""The topics of the cluster as a group sees them: ids and partition counts by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sized
from typing import Final, Protocol
from uuid import UUID


class Topic(Protocol):
    """A topic of the cluster image."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Sized: ...


Topics = Mapping[str, Topic]
"""All topics by name. A change replaces the mapping as a whole."""

NO_TOPICS: Final[Topics] = {}


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a hash of what an assignment of these topics depends on: their ids and partition counts.

    It is stored with the group epoch, as from Kafka 4.1 on (KIP-1101). The value itself is not Kafka's.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            digest.update(b"%b %b %d\n" % (name.encode(), topic.topic_id.bytes, len(topic.partitions)))
    return int.from_bytes(digest.digest(), "big", signed=True)
