"""Two brokers of a cluster on one event loop, with a metadata store in memory, for tests that look inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from skylog.broker import Broker, ServerConfig
from skylog.broker.clustered import ClusterMembership, clustered_broker
from skylog.broker.partition import Partition
from skylog.cluster import EmbeddedStore, MetadataStore
from skylog.cluster.metadata import new_topic
from skylog.model import TopicPartition
from tests.patience import patience

LEADER, FOLLOWER = 1, 2


class Pair(NamedTuple):
    leader: Broker
    follower: Broker

    async def create_topic(self, name: str = "t") -> tuple[Partition, Partition]:
        """Create a topic with one partition on both brokers. Return its replicas, the leader first."""
        await self.leader.metadata.create_topic(new_topic(name, [[LEADER, FOLLOWER]], {}))
        key = TopicPartition(name, 0)
        await until(lambda: all(broker.replicas.find(key) is not None for broker in self))
        first, second = (broker.replicas.find(key) for broker in self)
        assert first is not None
        assert second is not None
        return first, second


@asynccontextmanager
async def pair_of_brokers(path: Path, **settings: str) -> AsyncIterator[Pair]:
    """Run two brokers for the time of the block. Names of settings have underscores in place of dots."""
    store = EmbeddedStore(None)

    async def open_session() -> MetadataStore:
        return store.open_session()

    named = {key.replace("_", "."): value for key, value in settings.items()}
    brokers = []
    for node_id in (LEADER, FOLLOWER):
        config = ServerConfig.parse({"node.id": str(node_id), **named})
        brokers.append(await clustered_broker(path / str(node_id), open_session, config))
        await brokers[-1].start("127.0.0.1", 0)
    try:
        yield Pair(*brokers)
    finally:
        for broker in reversed(brokers):
            await broker.stop()


def membership_of(broker: Broker) -> ClusterMembership:
    assert isinstance(broker.membership, ClusterMembership)
    return broker.membership


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(patience(seconds)):
        while not condition():  # noqa: ASYNC110 # conditions of several brokers, none of which reports them
            await asyncio.sleep(0.01)
