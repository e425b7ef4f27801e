"""How `skylog serve` connects to the metadata store of a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from skylog.errors import SkylogError

if TYPE_CHECKING:
    from skylog.broker import BrokerConfig
    from skylog.cluster import MetadataStore

OpenSession = Callable[[], "Awaitable[MetadataStore]"]


def session_opener(zookeeper: str | None, metadata_store: str | None, config: BrokerConfig) -> OpenSession | None:
    """Return what opens a session with ZooKeeper or the store of a test kit; None for a standalone broker."""
    if zookeeper is not None and metadata_store is not None:
        raise SkylogError("a cluster has one metadata store: give --zookeeper or --metadata-store")
    if zookeeper is not None:
        return _zookeeper_opener(zookeeper, config)
    if metadata_store is not None:
        return _shared_store_opener(metadata_store, config)
    return None


def _zookeeper_opener(connect: str, config: BrokerConfig) -> OpenSession:
    async def open_session() -> MetadataStore:
        from skylog.cluster.zookeeper import open_zookeeper

        return await open_zookeeper(
            connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        )

    return open_session


def _shared_store_opener(address: str, config: BrokerConfig) -> OpenSession:
    async def open_session() -> MetadataStore:
        from skylog.cluster.shared_store import open_shared_store

        return await open_shared_store(address, f"broker-{config.node_id}", config.zookeeper_session_timeout_ms)

    return open_session
