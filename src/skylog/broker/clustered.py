"""A broker of a cluster: everything that it has beyond a standalone one, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Final
from uuid import UUID

from skylog.broker.broker import Broker
from skylog.broker.cluster_member import ClusterMember
from skylog.broker.config import BrokerConfig, ServerConfig
from skylog.broker.controller import Controller
from skylog.broker.deleted_logs import DeletedLogs
from skylog.broker.membership import MemberCounts
from skylog.broker.replication.fetchers import ReplicaFetchers
from skylog.broker.replication.follower_sessions import FollowerSessions
from skylog.broker.replication.in_sync_sets import InSyncSets
from skylog.broker.replication.repairs import Repairs
from skylog.broker.scrubber import Scrubber
from skylog.clock import Clock, SystemClock
from skylog.cluster import BrokerImage, EntryChange, MetadataStore, VersionConflictError
from skylog.cluster.embedded import FILE_NAME as EMBEDDED_FILE
from skylog.cluster.metadata import TOPIC_IDS
from skylog.cluster.renewable_session import OpenSession, RenewableSession
from skylog.errors import SkylogError
from skylog.storage import LogDir
from skylog.storage.files import LogFile, OpenFile
from skylog.storage.log_dir import META_PROPERTIES, new_id

CLUSTER: Final = "/cluster"


async def clustered_broker(
    data_dir: Path,
    open_session: OpenSession,
    config: ServerConfig | None = None,
    clock: Clock | None = None,
    open_file: OpenFile = LogFile,
) -> Broker:
    """Create a broker that joins the cluster of a metadata store. Raises SkylogError."""
    clock = clock or SystemClock()
    log_dir = LogDir(data_dir, clock, open_file)
    _check_nothing_is_lost(log_dir)
    store = RenewableSession(open_session)
    await store.open()
    cluster_id = await _cluster_id(store, log_dir.cluster_id)
    store.check = lambda session: _check_cluster(session, cluster_id)
    log_dir.begin_first_join()
    return Broker(
        log_dir, store, config or ServerConfig(), clock, cluster_id, lambda broker: ClusterMembership(broker, store)
    )


async def _cluster_id(store: RenewableSession, known: str | None) -> str:
    """Return the id of the cluster. The first broker makes it up, unless its data directory belongs to a cluster.

    Such a broker has the wrong address of the store, or the store has lost everything.
    """
    while True:
        entry = (await store.load(CLUSTER)).get(CLUSTER)
        if entry is not None:
            return str(entry.value["id"])
        if known is not None:
            raise SkylogError(
                f"the metadata store has no cluster, but this broker belongs to cluster {known}: "
                "check its address and chroot, or restore it from a backup"
            )
        try:
            await store.commit([EntryChange(CLUSTER, {"id": new_id()}, 0)])
        except VersionConflictError:
            continue  # another broker was first


async def _check_cluster(session: MetadataStore, cluster_id: str) -> None:
    """Raise SkylogError if the store has become another one: a broker would remove all logs that it does not know."""
    entry = (await session.load(CLUSTER)).get(CLUSTER)
    found = str(entry.value["id"]) if entry is not None else None
    if found != cluster_id:
        has = f"belongs to cluster {found}" if found else "is empty"
        raise SkylogError(
            f"the metadata store {has}, but this broker belongs to cluster {cluster_id}: restore it from a backup"
        )


async def _check_deleted(store: MetadataStore, cluster_id: str, topic_ids: Collection[UUID]) -> None:
    """Raise SkylogError unless the store has the cluster, and nothing of these topics: deleting one removes its id."""
    await _check_cluster(store, cluster_id)
    paths = [f"{TOPIC_IDS}{topic_id}" for topic_id in topic_ids]
    present = await store.load(paths[0] if len(paths) == 1 else TOPIC_IDS) if paths else {}
    for path in present.keys() & set(paths):
        raise SkylogError(
            f"the metadata store has lost topic '{present[path].value['topic']}', but not its id: "
            f"restore it from a backup, or remove {path} as well"
        )


def _check_nothing_is_lost(log_dir: LogDir) -> None:
    """Raise SkylogError if there are logs that no broker of a cluster wrote: they would be removed as unknown ones."""
    if (log_dir.path / EMBEDDED_FILE).exists():
        raise SkylogError(
            f"{log_dir.path} was used by a standalone broker, which keeps its topics in {EMBEDDED_FILE}; "
            "choose another --data-dir for a broker of a cluster"
        )
    folders = [] if (log_dir.path / META_PROPERTIES).exists() else log_dir.folders_with_data()
    if folders:
        raise SkylogError(
            f"{log_dir.path} has no {META_PROPERTIES}, but {len(folders)} logs with messages, such as "
            f"{folders[0].name}: restore {META_PROPERTIES} from a backup, or choose another --data-dir"
        )


class ClusterMembership:
    """The membership of a broker in a cluster: a member, a candidate for the controller, a leader and a follower."""

    is_replicated = True

    def __init__(self, broker: Broker, store: RenewableSession) -> None:
        self._broker = broker
        node_id, clock = broker.identity.node_id, broker.clock
        metadata, replicas, config = broker.metadata, broker.replicas, broker.config.broker
        rules = broker.election_rules
        self.member = ClusterMember(
            node_id,
            broker.identity.directory_id,
            store,
            metadata,
            replicas,
            rules,
            log_dir=broker.log_dir,
            on_join=self._start_work,
            on_expiry=self._stop_work,
        )
        self.controller = Controller(node_id, metadata, store, rules, config)
        self.fetchers = ReplicaFetchers(node_id, broker.flusher, clock, broker.housekeeping, config)
        self.followers = FollowerSessions(broker, lambda *fetched: self.in_sync_sets.consider(*fetched))
        self.in_sync_sets = InSyncSets(
            metadata,
            replicas,
            rules,
            clock,
            self.followers.last_fetch_s,
            config.replica_lag_time_max_ms / 1000,
        )
        self.deleted_logs = DeletedLogs(
            broker.log_dir,
            lambda topic_ids: _check_deleted(store, broker.identity.cluster_id, topic_ids),
            broker.housekeeping.discard,
        )
        replicas.discard_deleted = self.deleted_logs.keep
        self.repairs = Repairs(broker)
        self.scrubber = Scrubber(broker)
        broker.checks.on_damage = self.repairs.note
        replicas.on_assignment(self.fetchers.assigned)
        metadata.listen(self.fetchers.apply)
        metadata.listen(self.followers.apply)
        broker.background |= {
            "replicas": replicas,
            "controller": self.controller,
            "replication": self.fetchers,
            "in-sync sets": self.in_sync_sets,
            "repairs": self.repairs,
            "scrubber": self.scrubber,
        }

    @property
    def counts(self) -> MemberCounts:
        return MemberCounts(
            bytes_in=self.fetchers.bytes_in,
            bytes_out=self.followers.bytes_out,
            elections=self.controller.elections,
            unclean_elections=self.controller.unclean_elections,
            session_expirations=self.member.expirations,
            failed_in_sync_changes=self.in_sync_sets.failed_changes,
        )

    async def enter(self, was_clean: bool) -> None:
        await self.member.enter()

    async def register(self, broker: BrokerImage) -> None:
        await self.member.register(broker)

    async def move(self, broker: BrokerImage) -> None:
        await self.member.move(broker)

    def reconfigure(self, config: BrokerConfig) -> None:
        self.controller.reconfigure(config)
        self.fetchers.reconfigure(config)
        self.followers.reconfigure(config)

    def _start_work(self, incarnation: int) -> None:
        self.fetchers.incarnation = incarnation
        self.fetchers.security = self._broker.endpoints.peer_security
        self.fetchers.start()
        self.in_sync_sets.start()
        self.repairs.start()
        self.scrubber.start()
        self.controller.start()

    async def _stop_work(self) -> None:
        await asyncio.gather(
            self.controller.stop(),
            self.fetchers.stop(),
            self.in_sync_sets.stop(),
            self.repairs.stop(),
            self.scrubber.stop(),
        )

    async def hand_over(self) -> None:
        await self.member.hand_over()

    async def stop(self) -> None:
        await self.member.stop()
        await self._stop_work()
        await self.deleted_logs.stop()
        self.followers.close()
