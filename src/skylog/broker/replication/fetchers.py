"""The fetchers of a broker: gives each follower its leader, as the cluster's image changes."""

from __future__ import annotations

from skylog.broker.config import BrokerConfig
from skylog.broker.flusher import Flusher
from skylog.broker.housekeeping import Housekeeping
from skylog.broker.partition import Partition, Role
from skylog.broker.replication.fetcher import ReplicaFetcher
from skylog.clock import Clock
from skylog.cluster import BrokerImage, ClusterImage
from skylog.cluster.image import NO_LEADER
from skylog.model import TopicPartition
from skylog.net.peer import PeerSecurity
from skylog.replication.token_bucket import TokenBucket


class ReplicaFetchers:
    """The fetchers of this broker, one per leader that it follows."""

    def __init__(
        self, node_id: int, flusher: Flusher, clock: Clock, housekeeping: Housekeeping, config: BrokerConfig
    ) -> None:
        self._node_id = node_id
        self.incarnation = 0
        self.security: PeerSecurity | None = None
        self._flusher = flusher
        self._clock = clock
        self._housekeeping = housekeeping
        self._config = config
        self._bucket = TokenBucket(config.follower_replication_throttled_rate, clock.monotonic())
        self._brokers: dict[int, BrokerImage] = {}
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[TopicPartition, tuple[int, Partition]] = {}
        self._is_running = False
        self._failures_before = self._bytes_before = 0  # of fetchers that have ended

    @property
    def failures(self) -> int:
        return self._failures_before + sum(fetcher.failures for fetcher in self._fetchers.values())

    @property
    def bytes_in(self) -> int:
        """The bytes of batches that were copied from leaders since the broker was started."""
        return self._bytes_before + sum(fetcher.bytes_in for fetcher in self._fetchers.values())

    def start(self) -> None:
        self._is_running = True
        for leader_id, partition in self._leaders.values():
            self._add(leader_id, partition)

    async def stop(self) -> None:
        """Stop fetching. `start` continues."""
        self._is_running = False
        fetchers = list(self._fetchers.values())
        for leader_id in list(self._fetchers):
            self._end(leader_id)
        for fetcher in fetchers:
            await fetcher.ended()

    def assigned(self, partition: Partition) -> None:
        """Fetch a partition from its present leader. Called when its role, leader or epoch has changed."""
        name, image = partition.name, partition.image
        before, now = self._leaders.pop(name, None), None
        if partition.role is Role.FOLLOWER and image is not None and image.leader not in (self._node_id, NO_LEADER):
            now = self._leaders[name] = image.leader, partition
        if before is not None and before != now and before[0] in self._fetchers:
            self._fetchers[before[0]].remove(before[1])
        if now is not None:
            self._add(*now)

    def _add(self, leader_id: int, partition: Partition) -> None:
        broker = self._brokers.get(leader_id)
        if not self._is_running or broker is None:
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(
                self._node_id,
                self.incarnation,
                broker,
                self._flusher,
                self._clock,
                self._housekeeping,
                self._config,
                self._bucket,
            )
            fetcher.security = self.security  # before it connects
        fetcher.add(partition)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use another configuration from now on."""
        before, self._config = self._config, config
        if config.follower_replication_throttled_rate != before.follower_replication_throttled_rate:
            self._bucket.change_rate(config.follower_replication_throttled_rate, self._clock.monotonic())
            for leader_id, partition in self._leaders.values():
                self._add(leader_id, partition)

    def apply(self, _: ClusterImage, now: ClusterImage) -> None:
        """Follow brokers that start, stop or move."""
        if now.brokers == self._brokers:
            return
        before, self._brokers = self._brokers, dict(now.brokers)
        for node_id in before.keys() | self._brokers.keys():
            if node_id != self._node_id and _has_moved(before.get(node_id), self._brokers.get(node_id)):
                self._end(node_id)
                for leader_id, partition in self._leaders.values():
                    if leader_id == node_id:
                        self._add(node_id, partition)

    def _end(self, leader_id: int) -> None:
        fetcher = self._fetchers.pop(leader_id, None)
        if fetcher is not None:
            self._failures_before += fetcher.failures
            self._bytes_before += fetcher.bytes_in
            fetcher.stop()


def _has_moved(before: BrokerImage | None, now: BrokerImage | None) -> bool:
    """Whether a broker is another process, or has another address."""
    if before is None or now is None:
        return before is not now
    return (before.host, before.port, before.incarnation) != (now.host, now.port, now.incarnation)
