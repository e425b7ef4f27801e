"""A client's connections to the brokers of a cluster, and what it knows of their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from skylog.errors import ErrorCode
from skylog.net.peer import Peer, PeerError
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from skylog.protocol.schema import Message

REQUEST_S: Final = 6.0
CONNECT_S: Final = 2.0
RETRY_S: Final = 0.1


class Leader(NamedTuple):
    """Who leads a partition, as far as a client knows."""

    node_id: int
    epoch: int
    topic_id: UUID


class Connections:
    """The connections of one client. `hosts` are the addresses to begin with."""

    def __init__(self, name: str, hosts: Sequence[tuple[str, int]], rng: Random, patience_s: float = REQUEST_S) -> None:
        self.name = name
        self._patience_s = patience_s
        self.rng = rng
        self._hosts = hosts
        self._peers: dict[tuple[str, int], Peer] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}

    async def peer(self, address: tuple[str, int]) -> Peer:
        """Return the connection to an address. Raises PeerError."""
        peer = self._peers.get(address)
        if peer is None or not peer.is_open:
            host, port = address
            opened = await Peer.connect(host, port, client_id=self.name, timeout_s=CONNECT_S)
            opened._timeout_s = self._patience_s
            peer = self._peers[address] = opened
        return peer

    async def peer_of(self, node_id: int) -> Peer:
        if node_id not in self._addresses:
            raise PeerError(f"broker {node_id} is unknown")
        return await self.peer(self._addresses[node_id])

    async def ask(self, node_id: int, request: Message, version: int | None = None) -> Any:
        """Ask a broker. Raises PeerError."""
        return await (await self.peer_of(node_id)).ask(request, version)

    async def ask_any(self, request: Message) -> Any:
        """Ask any broker. Raises PeerError."""
        return await (await self.peer(self.rng.choice(self._hosts))).ask(request)

    async def refresh(self, topic: str) -> MetadataResponse:
        """Ask any broker for the leaders of a topic. Raises PeerError. A leader of an older epoch is not believed."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        response: MetadataResponse = await self.ask_any(request)
        self._addresses |= {each.node_id: (each.host, each.port) for each in response.brokers}
        for row in response.topics:
            for each in row.partitions:
                known = self._leaders.get((topic, each.partition_index))
                if known is None or known.topic_id != row.topic_id or each.leader_epoch >= known.epoch:
                    leader = Leader(each.leader_id, each.leader_epoch, row.topic_id)
                    self._leaders[topic, each.partition_index] = leader
        return response

    async def leader(self, topic: str, partition: int) -> Leader:
        """Return the leader of a partition. Raises PeerError if there is none."""
        leader = self._leaders.get((topic, partition))
        if leader is None or leader.node_id < 0:
            await self.refresh(topic)
            leader = self._leaders.get((topic, partition))
        if leader is None or leader.node_id < 0:
            raise PeerError(f"{topic}-{partition} has no leader")
        return leader

    def forget_leader(self, topic: str, partition: int) -> None:
        """Look for the leader again before the next request."""
        known = self._leaders.get((topic, partition))
        if known is not None:
            self._leaders[topic, partition] = known._replace(node_id=-1)

    async def coordinator(self, key: str, key_type: int) -> int:
        """Return the coordinator of a group (type 0) or a transactional id (1). Raises PeerError."""
        response = await self.ask_any(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type))
        (found,) = response.coordinators
        if found.error_code:
            raise PeerError(f"no coordinator of {key}: {ErrorCode(found.error_code).name}")
        self._addresses[found.node_id] = (found.host, found.port)
        return int(found.node_id)

    async def pause(self, longest_s: float = RETRY_S) -> None:
        await asyncio.sleep(self.rng.random() * longest_s)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
