"""How `skylog serve` connects to the metadata store of a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from skylog.errors import SkylogError

if TYPE_CHECKING:
    from skylog.broker import ServerConfig
    from skylog.cluster import MetadataStore

OpenSession = Callable[[], "Awaitable[MetadataStore]"]


def session_opener(zookeeper: str | None, metadata_store: str | None, config: ServerConfig) -> OpenSession | None:
    """Return what opens a session with ZooKeeper or the store of a test kit; None for a standalone broker."""
    if zookeeper is not None and metadata_store is not None:
        raise SkylogError("a cluster has one metadata store: give --zookeeper or --metadata-store")
    if zookeeper is not None:
        return _zookeeper_opener(zookeeper, config)
    if metadata_store is not None:
        return _shared_store_opener(metadata_store, config)
    return None


def _zookeeper_opener(connect: str, config: ServerConfig) -> OpenSession:
    from skylog.cluster.zookeeper import ZooKeeperAccess

    settings = config.zookeeper
    user, password = settings.login()
    access = ZooKeeperAccess(
        has_tls=settings.zookeeper_ssl_client_enable,
        authority=settings.zookeeper_ssl_truststore_location,
        identity=settings.zookeeper_ssl_keystore_location,
        key_password=settings.zookeeper_ssl_keystore_password,
        checks_host=bool(settings.zookeeper_ssl_endpoint_identification_algorithm),
        user=user,
        password=password,
        sets_acl=settings.zookeeper_set_acl,
    )
    access.check()

    async def open_session() -> MetadataStore:
        from skylog.cluster.zookeeper import open_zookeeper

        return await open_zookeeper(
            connect,
            session_timeout_ms=config.broker.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.broker.zookeeper_connection_timeout_ms,
            access=access,
        )

    return open_session


def _shared_store_opener(address: str, config: ServerConfig) -> OpenSession:
    async def open_session() -> MetadataStore:
        from skylog.cluster.shared_store import open_shared_store

        return await open_shared_store(
            address, f"broker-{config.broker.node_id}", config.broker.zookeeper_session_timeout_ms
        )

    return open_session
