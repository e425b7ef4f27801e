"""The broker: puts storage, cluster metadata, network and handlers together, starts them and stops them."""

from __future__ import annotations

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from skylog.broker.compactor import Compactor
from skylog.broker.config import ServerConfig
from skylog.broker.coordinator import Coordinator
from skylog.broker.flusher import Flusher
from skylog.broker.handlers import APIS
from skylog.broker.housekeeping import Housekeeping
from skylog.broker.metrics.pauses import PauseProbe
from skylog.broker.metrics.requests import Requests
from skylog.broker.partitions import Partitions
from skylog.broker.router import Router
from skylog.broker.topics import Topics
from skylog.clock import Clock, SystemClock
from skylog.cluster import BrokerImage, ClusterImage, ClusterMetadata, EmbeddedStore
from skylog.errors import ConfigError
from skylog.net import Connection, Listener
from skylog.storage import LogDir
from skylog.storage.files import LogFile, OpenFile

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS: Final = 5.0
DISK_THREADS: Final = 8
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_LISTENER = re.compile(r"(?:PLAINTEXT://)?(?P<host>\[[^\]]+\]|[^:/\[\]]*):(?P<port>\d+)")


class Background(Protocol):
    """Something that works unasked, so that nobody hears of its failures unless they are counted."""

    @property
    def failures(self) -> int: ...


class Broker:
    """One broker. Use it as `await broker.start(host, port)` … `await broker.stop()`, on one event loop.

    `background` has what works beside the requests, by name; whoever runs something beside the broker adds to it.
    """

    def __init__(
        self,
        data_dir: Path,
        config: ServerConfig | None = None,
        clock: Clock | None = None,
        open_file: OpenFile = LogFile,
    ) -> None:
        self.config = config or ServerConfig()
        self.clock = clock or SystemClock()
        self.apis = APIS
        self._advertised = parse_listener(self.config.broker.advertised_listeners)
        self.executor = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="skylog-disk")
        self.codec = ThreadPoolExecutor(1, thread_name_prefix="skylog-codec")  # decodes and encodes what is large
        self.log_dir = LogDir(data_dir, self.clock, open_file)
        self.identity = self.log_dir.identify(self.config.broker.node_id)
        self.flusher = Flusher(self.executor)
        self.requests = Requests()
        self.pause_probe = PauseProbe()
        self.background: dict[str, Background] = {}
        self.listener = Listener(self.config.net, Router(self, APIS))

    async def start(self, host: str, port: int) -> int:
        """Open the logs and listen; the port that clients reach."""
        node_id = self.identity.node_id
        self.started_at_ms = self.clock.now_ms()
        self._store = EmbeddedStore(self.log_dir.path)
        self.metadata = ClusterMetadata(self._store, ClusterImage(self.identity.cluster_id, node_id, {}))
        self.housekeeping = Housekeeping(
            self.log_dir, lambda: self.partitions, self.flusher, self.executor, self.clock, self.config.broker
        )
        self.partitions = Partitions(self.log_dir, self.config.log, self.executor, self.housekeeping.discard)
        self.topics = Topics(self.metadata, self.partitions, self.config)
        self.coordinator = Coordinator(self, self.config.groups)
        self.compactor = Compactor(
            self.partitions, self.executor, self.clock, self.config.broker, self.housekeeping.discard
        )
        self.background |= {
            "metadata": self.metadata,
            "housekeeping": self.housekeeping,
            "compactor": self.compactor,
            "coordinator": self.coordinator,
        }
        self.metadata.listen(self.partitions.apply)
        was_clean = self.log_dir.clean
        await self.metadata.load()
        if not was_clean:
            await self.metadata.begin_epochs()
        self.log_dir.opened()
        for folder in self.log_dir.leftovers(self.partitions.offline):
            self.housekeeping.discard(folder)
        self._host = host
        self._port = await self.listener.start(host, port)
        self.metadata.register(BrokerImage(node_id, host, self._port, self.config.broker.broker_rack or None))
        self.housekeeping.start()
        self.compactor.start()
        self.coordinator.start()
        self.pause_probe.start()
        logger.info(
            "broker %d of cluster %s serves %d partitions from %s",
            node_id,
            self.identity.cluster_id,
            len(self.partitions),
            self.log_dir.path,
        )
        return self._port

    async def stop(self) -> None:
        """Answer what has been asked, bring everything to disk, and leave the mark of a clean stop."""
        await self.listener.stop(STOP_GRACE_SECONDS)
        self.pause_probe.stop()
        await self.coordinator.stop()
        await self.compactor.stop()
        await self.housekeeping.stop()
        await self._store.close()
        await asyncio.get_running_loop().run_in_executor(None, self._close_logs)
        logger.info("broker %d has stopped", self.identity.node_id)

    def _close_logs(self) -> None:
        self.codec.shutdown()
        self.executor.shutdown()
        self.log_dir.close()

    def addresses(self, connection: Connection) -> list[BrokerImage]:
        """The brokers, each at an address that the client on `connection` can reach."""
        return [
            self._own_address(connection) if node_id == self.identity.node_id else image
            for node_id, image in self.metadata.image.brokers.items()
        ]

    def _own_address(self, connection: Connection) -> BrokerImage:
        if self._advertised is not None:
            host, port = self._advertised
        elif self._host in _WILDCARDS:
            host, port = connection.local_address
        else:
            host, port = self._host, self._port
        return BrokerImage(self.identity.node_id, host, port, self.config.broker.broker_rack or None)


def parse_listener(text: str) -> tuple[str, int] | None:
    """Host and port of `PLAINTEXT://host:port`; None for an empty text. Raises ConfigError."""
    if not text:
        return None
    match = _LISTENER.fullmatch(text.strip())
    if match is None or not match["host"]:
        raise ConfigError(f"advertised.listeners={text}: expected PLAINTEXT://host:port")
    return match["host"].strip("[]"), int(match["port"])
