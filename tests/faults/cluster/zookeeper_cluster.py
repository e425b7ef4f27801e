"""A cluster on a real ZooKeeper, with the methods of `BrokerCluster`. Brokers reach ZooKeeper directly."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, cast

from skylog.cluster import Entry, MetadataStore, SessionExpiredError
from skylog.cluster.zookeeper import open_zookeeper
from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.testing import BrokerCluster
from skylog.testing.loop_thread import LoopThread
from skylog.testing.network_process import RemoteStore

from .ensemble import Ensemble
from .nemesis import SETTINGS


class ZooKeeperStore:
    """Takes the place of a `RemoteStore`, to look at the state of the cluster."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._thread = LoopThread("zookeeper")
        self._session: MetadataStore | None = None

    def entries(self, prefix: str = "") -> dict[str, Entry]:
        """Return the current entries whose path starts with `prefix`. Waits for ZooKeeper if it is away."""
        while True:
            try:
                return cast(dict[str, Entry], self._run(self._load(prefix)))
            except SessionExpiredError:
                self._session = None

    async def _load(self, prefix: str) -> dict[str, Entry]:
        if self._session is None:
            self._session = await open_zookeeper(self.address, session_timeout_ms=6000, connection_timeout_ms=60_000)
        return await self._session.load(prefix)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._thread.run(work)

    def heal(self, name: str) -> None:
        """Nothing is cut here."""

    def close(self) -> None:
        if self._session is not None:
            self._run(self._session.close())
        self._thread.close()


class ZooKeeperCluster(BrokerCluster):
    """Three brokers on a ZooKeeper server, or on an ensemble of them."""

    def __init__(self, server: ZooKeeperServer | Ensemble, session_timeout_ms: int) -> None:
        self._server = server
        super().__init__(settings=SETTINGS, session_timeout_ms=session_timeout_ms)

    def _open_store(self) -> RemoteStore:
        return cast(RemoteStore, ZooKeeperStore(self._server.address))

    def close(self) -> None:
        try:
            super().close()
        finally:
            cast(ZooKeeperStore, self.store).close()

    def _store_options(self) -> list[str]:
        return ["--zookeeper", self._server.address]
