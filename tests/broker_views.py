"""What each broker of a cluster knows of a topic. Brokers learn of a change one after another."""

from __future__ import annotations

import asyncio

from skylog.net.peer import Peer
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.testing import BrokerCluster, wait_until

View = list[tuple[int, tuple[int, ...], set[int]]]
"""Leader, replicas and in-sync set of each partition."""


def wait_until_known(cluster: BrokerCluster, topic: str) -> None:
    """Wait until all running brokers know the same of a topic, so that a client may ask any of them."""

    def is_known() -> bool:
        ports = [broker.port for broker in cluster.brokers.values() if broker.is_running]
        views = [asyncio.run(_view(port, topic)) for port in ports]
        return bool(views[0]) and all(view == views[0] for view in views)

    wait_until(is_known, f"all brokers to know {topic}")


async def _view(port: int, topic: str) -> View:
    peer = await Peer.connect("127.0.0.1", port, client_id="skylog-tests")
    try:
        wanted = [MetadataRequestTopic(name=topic)]
        response = await peer.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    finally:
        peer.close()
    rows = response.topics[0].partitions
    return [(row.leader_id, tuple(row.replica_nodes), set(row.isr_nodes)) for row in rows]
