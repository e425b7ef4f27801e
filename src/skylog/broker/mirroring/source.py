"""The cluster that a mirror copies from: skylog or Apache Kafka, reached like any other client would."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from skylog.errors import ConfigError, ErrorCode, KafkaError
from skylog.net.peer import Peer, PeerError, PeerSecurity
from skylog.net.tls import TlsConfig, client_context
from skylog.protocol.metadata import MetadataRequest
from skylog.protocol.schema import ZERO_UUID, Message
from skylog.replication.mirror import Mirror
from skylog.security.peer_login import WITH_PASSWORDS, password_login

TIMEOUT_S: Final = 10.0


class SourceTopic(NamedTuple):
    """A topic of the source: its id, ZERO_UUID if the source has no ids, and leader and epoch of its partitions."""

    topic_id: UUID
    is_internal: bool
    leaders: Mapping[int, tuple[int, int]]

    @property
    def known_id(self) -> str:
        return "" if self.topic_id == ZERO_UUID else str(self.topic_id)


class SourceImage(NamedTuple):
    cluster_id: str
    brokers: Mapping[int, tuple[str, int]]
    topics: Mapping[str, SourceTopic]


def source_security(client: Mapping[str, str]) -> PeerSecurity | None:
    """Return how to connect, given settings with librdkafka's names and PEM as text. Raises ConfigError."""
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    context = None
    if protocol.endswith("SSL"):
        checks_host = client.get("ssl.endpoint.identification.algorithm", "").lower() != "none"
        tls = TlsConfig(
            certificate_chain=client.get("ssl.certificate.pem", ""),
            key=client.get("ssl.key.pem", ""),
            key_password=client.get("ssl.key.password", ""),
            trusted=client.get("ssl.ca.pem", ""),
        )
        made = client_context(tls, checks_host=checks_host)
        context = lambda: made  # noqa: E731
    if not protocol.startswith("SASL"):
        return None if context is None else PeerSecurity(context)
    mechanism = client.get("sasl.mechanisms", "").upper()
    if mechanism not in WITH_PASSWORDS:
        raise ConfigError(f"a mirror supports sasl.mechanism {', '.join(WITH_PASSWORDS)}, not '{mechanism}'")
    login = password_login(mechanism, client.get("sasl.username", ""), client.get("sasl.password", ""))
    return PeerSecurity(context, login)


class Source:
    """Connections to the brokers of a source. Use it on the event loop. Methods raise PeerError or KafkaError."""

    def __init__(self, mirror: Mirror, client_id: str) -> None:
        self._addresses = mirror.addresses()
        self._security = source_security(mirror.client)
        self._client_id = client_id
        self._peers: dict[int | None, Peer] = {}
        self._connecting = asyncio.Lock()
        self.image = SourceImage("", {}, {})

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    async def load(self) -> SourceImage:
        """Load the brokers and topics of the source."""
        answer = await self.ask(None, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        self.image = SourceImage(
            answer.cluster_id or "",
            {each.node_id: (each.host, each.port) for each in answer.brokers},
            {
                topic.name: SourceTopic(
                    topic.topic_id,
                    topic.is_internal,
                    {each.partition_index: (each.leader_id, each.leader_epoch) for each in topic.partitions},
                )
                for topic in answer.topics
                if not topic.error_code
            },
        )
        return self.image

    async def ask(self, node_id: int | None, request: Message, version: int | None = None) -> Any:
        """Ask a broker of the source, or any of them, over a connection that is kept."""
        async with self._connecting:
            peer = self._peers.get(node_id)
            if peer is None or not peer.is_open:
                peer = self._peers[node_id] = (
                    await self._connect_any() if node_id is None else await self.connect(node_id)
                )
        return await peer.ask(request, version)

    async def connect(self, node_id: int) -> Peer:
        """Return a new connection to a broker of the source."""
        address = self.image.brokers.get(node_id)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the source does not know its broker {node_id} now")
        return await self._connect(address)

    async def _connect_any(self) -> Peer:
        error: PeerError | None = None
        for address in dict.fromkeys((*self._addresses, *self.image.brokers.values())):
            try:
                return await self._connect(address)
            except PeerError as failed:
                error = error or failed
        assert error is not None
        raise error

    async def _connect(self, address: tuple[str, int]) -> Peer:
        return await Peer.connect(*address, client_id=self._client_id, timeout_s=TIMEOUT_S, security=self._security)
