"""The broker: puts storage, cluster metadata, network and handlers together, starts them and stops them."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from skylog.broker.checks import Checks
from skylog.broker.compactor import Compactor
from skylog.broker.config import NodeFacts, ServerConfig, parse_listener
from skylog.broker.coordinator import Coordinator
from skylog.broker.dynamic_configs import DynamicConfigs
from skylog.broker.fetch_sessions import FetchSessions
from skylog.broker.flusher import Flusher
from skylog.broker.handlers import APIS
from skylog.broker.housekeeping import Housekeeping
from skylog.broker.metrics.pauses import PauseProbe
from skylog.broker.metrics.requests import Requests
from skylog.broker.partitions import Partitions
from skylog.broker.router import Router
from skylog.broker.topic_rows import TopicRows
from skylog.broker.topics import Topics
from skylog.broker.turn import Turn
from skylog.clock import Clock, SystemClock
from skylog.cluster import BrokerImage, ClusterImage, ClusterMetadata, EmbeddedStore
from skylog.cluster.broker_configs import BrokerConfigs
from skylog.errors import SkylogError
from skylog.net import Connection, Listener
from skylog.storage import LogDir
from skylog.storage.files import LogFile, OpenFile

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS: Final = 5.0
DISK_THREADS: Final = 8
LOGS_AT_ONCE: Final = 100
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})


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
        self.executor = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="skylog-disk")
        # Long work in Python has one thread of each kind: more would only compete with the event loop.
        self.codec = ThreadPoolExecutor(1, thread_name_prefix="skylog-codec")  # decodes and encodes what is large
        self.opener = ThreadPoolExecutor(1, thread_name_prefix="skylog-opener")  # opens batches that are produced
        self.searcher = ThreadPoolExecutor(1, thread_name_prefix="skylog-searcher")  # looks for records by time
        self.checks = Checks(self.executor)
        self.log_dir = LogDir(data_dir, self.clock, open_file)
        self.identity = self.log_dir.identify(self.config.broker.node_id)
        self.facts = NodeFacts(broker_id=self.identity.node_id, log_dirs=str(self.log_dir.path.absolute()))
        self.flusher = Flusher(self.executor)
        self.requests = Requests()
        self.pause_probe = PauseProbe()
        self.fetch_sessions = FetchSessions(self.config.broker.max_incremental_fetch_session_cache_slots)
        self.background: dict[str, Background] = {}
        self.listener = Listener(self.config.net, Router(self, APIS))

    async def start(self, host: str, port: int) -> int:
        """Open the logs and listen; the port that clients reach."""
        node_id = self.identity.node_id
        self.started_at_ms = self.clock.now_ms()
        self._store = EmbeddedStore(self.log_dir.path)
        if self._store.is_new:
            self._check_nothing_is_lost()
        self.configs = DynamicConfigs(self.config, BrokerConfigs(self._store), node_id, self._reconfigure)
        self.config = await self.configs.load()
        self._advertised = parse_listener(self.config.broker.advertised_listeners)
        self.listener.reconfigure(self.config.net)
        self.metadata = ClusterMetadata(self._store, ClusterImage(self.identity.cluster_id, node_id, {}))
        self.housekeeping = Housekeeping(
            self.log_dir, lambda: self.partitions, self.flusher, self.executor, self.clock, self.config.broker
        )
        self.partitions = Partitions(self.log_dir, self.config.log, self.executor, self.housekeeping.discard)
        self.topics = Topics(self.metadata, self.partitions, self.config)
        self.topic_rows = TopicRows(self.metadata)
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
        self.log_dir.opened(self.partitions.offline)
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

    def _check_nothing_is_lost(self) -> None:
        """Without metadata every log would count as a deleted topic's, and be removed."""
        folders = self.log_dir.folders_with_data()
        if folders:
            raise SkylogError(
                f"{self.log_dir.path} has no metadata, but {len(folders)} logs with messages, such as "
                f"{folders[0].name}: restore metadata.json from a copy, or remove the logs"
            )

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
        for executor in (self.codec, self.opener, self.searcher):
            executor.shutdown()
        self.executor.shutdown()
        self.log_dir.close()

    async def _reconfigure(self, config: ServerConfig) -> None:
        """Put another configuration into force: the logs follow one after the other."""
        before, self.config = self.config, config
        self._advertised = parse_listener(config.broker.advertised_listeners)
        self.listener.reconfigure(config.net)
        self.topics.reconfigure(config)
        self.housekeeping.reconfigure(config.broker)
        self.compactor.reconfigure(config.broker)
        self.partitions.reconfigure(config.log)
        if config.log != before.log:
            await self._reconfigure_logs()

    async def _reconfigure_logs(self) -> None:
        """Give every log the new defaults. A topic may change or go meanwhile, so it is looked up after each pause."""
        turn = Turn()
        for name in list(self.metadata.image.topics):
            for start in range(0, len(self.partitions.of_topic(name)), LOGS_AT_ONCE):
                topic = self.metadata.image.topics.get(name)
                if topic is None:
                    break
                config = self.partitions.config_of(topic)
                for partition in self.partitions.of_topic(name)[start : start + LOGS_AT_ONCE]:
                    partition.log.configure(config)
                await turn.give_way()

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
