"""The broker: assembles storage, cluster metadata, network and handlers, starts them and stops them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Final, Protocol

from skylog.broker.commits import Commits
from skylog.broker.compactor import Compactor
from skylog.broker.config import DerivedConfig, ServerConfig
from skylog.broker.dynamic_configs import DynamicConfigs
from skylog.broker.election_rules import TopicRules
from skylog.broker.endpoints import Endpoints
from skylog.broker.fetch_sessions import FetchSessions
from skylog.broker.flusher import Flusher
from skylog.broker.group_coordinator import GroupCoordinator
from skylog.broker.handlers import APIS
from skylog.broker.housekeeping import Housekeeping
from skylog.broker.leader_client import LeaderClient
from skylog.broker.log_checker import LogChecker
from skylog.broker.membership import Membership, StandaloneMembership
from skylog.broker.metrics.pauses import PauseProbe
from skylog.broker.metrics.requests import Requests
from skylog.broker.mirroring.mirrors import Mirrors
from skylog.broker.partition_changes import PartitionChanges
from skylog.broker.quotas.client_quotas import ClientQuotas
from skylog.broker.replica_placement import ReplicaPlacement
from skylog.broker.replicas import Replicas
from skylog.broker.router import Router
from skylog.broker.security.access import AccessControl
from skylog.broker.session import PLAINTEXT, Session
from skylog.broker.time_slice import TimeSlice
from skylog.broker.topic_rows import TopicRows
from skylog.broker.topics import Topics
from skylog.broker.transaction_coordinator import TransactionCoordinator
from skylog.clock import Clock
from skylog.cluster import BrokerImage, ClusterImage, ClusterMetadata, MetadataStore
from skylog.cluster.broker_configs import BrokerConfigs
from skylog.cluster.image import NO_CONTROLLER
from skylog.cluster.scram_users import ScramUsers
from skylog.net import Connection, Listener
from skylog.storage import LogDir

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS: Final = 5.0
DISK_THREADS: Final = 8
LOGS_AT_ONCE: Final = 100


class Background(Protocol):
    """A background task. Its failures are counted and exported as metrics."""

    @property
    def failures(self) -> int: ...


class Broker:
    """One broker. Use it as `await broker.start(host, port)` … `await broker.stop()`, on one event loop.

    It gets its data directory, its session with the metadata store, its configuration and a clock. One of a cluster
    also gets the id of the cluster and its membership; see `clustered.py`. `background` has the background tasks by
    name; add further tasks that run beside the broker.
    """

    def __init__(
        self,
        log_dir: LogDir,
        store: MetadataStore,
        config: ServerConfig,
        clock: Clock,
        cluster_id: str | None = None,
        membership: Callable[[Broker], Membership] | None = None,
    ) -> None:
        self.log_dir = log_dir
        self._store = store
        self.config = config
        self.clock = clock
        self.apis = APIS
        self.executor = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="skylog-disk")
        # Long work in Python gets one thread of each kind: more would compete with the event loop.
        self.codec = ThreadPoolExecutor(1, thread_name_prefix="skylog-codec")  # decodes and encodes large messages
        self.opener = ThreadPoolExecutor(1, thread_name_prefix="skylog-opener")  # opens produced batches
        self.searcher = ThreadPoolExecutor(1, thread_name_prefix="skylog-searcher")  # searches for records by time
        self.assigner = ThreadPoolExecutor(1, thread_name_prefix="skylog-assigner")  # assigns partitions of groups
        self.checks = LogChecker(self.executor)
        self.identity = self.log_dir.identify(self.config.broker.node_id, cluster_id)
        self._make_membership = membership or (lambda broker: StandaloneMembership(broker.metadata))
        self._is_replicated = membership is not None
        self.derived_config = DerivedConfig(broker_id=self.identity.node_id, log_dirs=str(self.log_dir.path.absolute()))
        self.flusher = Flusher(self.executor)
        self.commits = Commits(self.flusher)
        self.requests = Requests()
        self.pause_probe = PauseProbe()
        self.fetch_sessions = FetchSessions(self.config.broker.max_incremental_fetch_session_cache_slots)
        self.background: dict[str, Background] = {}
        self.access = AccessControl(config.security, store) if config.security.authorizer_class_name else None
        self.router = Router(self, APIS)
        self.listener = Listener(
            self.config.net,
            self.router.open_session,
            self.config.quotas.quota_window_num,
            self.config.quotas.quota_window_size_seconds,
        )
        self.quotas = ClientQuotas(store, self.config.quotas, clock, self.router, self.listener)
        self.users = ScramUsers(store)
        self.endpoints = Endpoints(
            self.identity.node_id, self.router, self.listener, self.users, is_replicated=self._is_replicated
        )

    async def start(self, host: str | None, port: int | None) -> int:
        """Open the logs, listen, and return the port. `host` and `port` replace the address of the first listener."""
        node_id = self.identity.node_id
        self.started_at_ms = self.clock.now_ms()
        self.configs = DynamicConfigs(
            self.config,
            BrokerConfigs(self._store),
            node_id,
            self._is_broker,
            self._reconfigure,
            self.endpoints.check,
        )
        self.config = await self.configs.load()
        self.listener.reconfigure(self.config.net)
        self.metadata = ClusterMetadata(
            self._store,
            ClusterImage(self.identity.cluster_id, NO_CONTROLLER if self._is_replicated else node_id, {}),
        )
        self.housekeeping = Housekeeping(
            self.log_dir, lambda: self.replicas, self.flusher, self.executor, self.clock, self.config.broker
        )
        self.replicas = Replicas(
            node_id,
            self.log_dir,
            self.config.log,
            self.executor,
            self.housekeeping.discard,
            self.clock,
            is_replicated=self._is_replicated,
        )
        self.election_rules = TopicRules(self.replicas)
        self.membership = self._make_membership(self)
        self.topics = Topics(
            self.metadata,
            self.replicas,
            ReplicaPlacement(node_id, self.metadata, self.replicas, Random()),
            self.election_rules,
            self.config,
        )
        self.partition_changes = PartitionChanges(self.metadata, self.election_rules, lambda: self.replicas.may_lead)
        self.topic_rows = TopicRows(node_id, self.metadata, self.replicas)
        self.leader_client = LeaderClient(self)
        self.coordinator = GroupCoordinator(self, self.config.groups)
        self.transactions = TransactionCoordinator(self, self.config.transactions)
        self.compactor = Compactor(
            self.replicas, self.executor, self.clock, self.config.broker, self.housekeeping.discard
        )
        self.mirrors = Mirrors(self, self._store, Random())
        self.background |= {
            "configuration": self.configs,
            "metadata": self.metadata,
            "housekeeping": self.housekeeping,
            "compactor": self.compactor,
            "coordinator": self.coordinator,
            "transactions": self.transactions,
            "mirrors": self.mirrors,
        }
        self.metadata.listen(self.replicas.apply)
        await self.mirrors.load()
        was_clean = self.log_dir.clean
        await self.membership.enter(was_clean)
        self.log_dir.opened(self.replicas.offline)
        leftovers = self.log_dir.set_leftovers_aside(self.replicas.offline)
        if leftovers:
            self.replicas.discard_deleted(*leftovers)
        if self.access is not None:
            await self.access.load()
        await self.quotas.load()
        bound = await self.endpoints.start(self.config, host, port)
        await self.replicas.start()
        await self.membership.register(self.endpoints.registration())
        self.housekeeping.start()
        self.compactor.start()
        self.coordinator.start()
        self.transactions.start()
        self.configs.start()
        self.mirrors.start()
        self.pause_probe.start()
        logger.info(
            "broker %d of cluster %s serves %d partitions from %s",
            node_id,
            self.identity.cluster_id,
            len(self.replicas),
            self.log_dir.path,
        )
        return bound

    async def stop(self) -> None:
        """Answer the requests under way, flush everything to disk, and leave the mark of a clean stop."""
        await self.configs.stop()
        await self.mirrors.stop()
        await self.membership.hand_over()
        await self.listener.stop(STOP_GRACE_SECONDS)
        self.pause_probe.stop()
        await self.transactions.stop()
        await self.coordinator.stop()
        self.leader_client.close()
        await self.membership.stop()
        await self.compactor.stop()
        await self.housekeeping.stop()
        await self._store.close()
        await self.replicas.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._close_logs)
        logger.info("broker %d has stopped", self.identity.node_id)

    def _close_logs(self) -> None:
        for executor in (self.codec, self.opener, self.searcher, self.assigner):
            executor.shutdown()
        self.executor.shutdown()
        self.log_dir.close()

    async def _reconfigure(self, config: ServerConfig) -> None:
        """Apply another configuration. The logs are reconfigured one after the other."""
        before, self.config = self.config, config
        if self.endpoints.reconfigure(config):
            await self.membership.move(self.endpoints.registration())
        self.listener.reconfigure(config.net)
        self.topics.reconfigure(config)
        self.housekeeping.reconfigure(config.broker)
        self.compactor.reconfigure(config.broker)
        self.replicas.reconfigure(config.log)
        if config.log != before.log:
            await self._reconfigure_logs()
        self.membership.reconfigure(config.broker)

    async def _reconfigure_logs(self) -> None:
        """Give every log the new defaults. A topic may change or go meanwhile, so look it up after each pause."""
        time_slice = TimeSlice()
        for name in list(self.metadata.image.topics):
            for start in range(0, len(self.replicas.of_topic(name)), LOGS_AT_ONCE):
                topic = self.metadata.image.topics.get(name)
                if topic is None:
                    break
                config = self.replicas.config_of(topic)
                for partition in self.replicas.of_topic(name)[start : start + LOGS_AT_ONCE]:
                    self.replicas.configure(partition, config)
                await time_slice.yield_if_over()

    def _is_broker(self, name: str) -> bool:
        return any(str(node_id) == name for node_id in self.metadata.image.brokers)

    def addresses(self, connection: Connection) -> list[BrokerImage]:
        """Return the brokers, each with an address that the client on `connection` can reach.

        Brokers that do not have the client's listener are left out. There is always one: if no broker is registered,
        because all sessions have expired, this one. librdkafka forgets the brokers that are not in a response, and with
        an empty one it has nobody left to ask.
        """
        session = connection.handler
        listener = session.listener if isinstance(session, Session) else PLAINTEXT
        found = [
            self.endpoints.own_address(connection) if node_id == self.identity.node_id else image.at(listener)
            for node_id, image in self.metadata.image.brokers.items()
        ]
        return [address for address in found if address is not None] or [self.endpoints.own_address(connection)]
