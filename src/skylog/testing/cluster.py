"""A cluster of broker processes for tests, with failures of processes and of the network.

    with BrokerCluster() as cluster:
        produce(cluster.bootstrap, "letters", ["a"])
        leader = cluster.leader_of("letters")
        cluster.kill(leader)
        cluster.wait_for_leader("letters", other_than=leader)

The brokers share a metadata store, so there is no ZooKeeper and no JVM. Each broker listens on a private port and
advertises its proxy, through which clients and the other brokers connect. `network_process.py` runs store and proxies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

from skylog.cluster.image import NO_CONTROLLER, NO_LEADER, PartitionImage, TopicImage
from skylog.cluster.metadata import TOPICS
from skylog.net.peer import Peer, PeerError
from skylog.protocol.metadata import MetadataRequest
from skylog.testing.broker import BrokerProcess
from skylog.testing.loop_thread import LoopThread
from skylog.testing.network_process import NetworkProcess, RemoteStore
from skylog.testing.proxy import HOST
from skylog.testing.waiting import wait_until

MANY_REPLICAS: Final = 3
_PEER_TIMEOUT_S: Final = 5.0


class BrokerCluster:
    """Brokers with the node ids 1 to `size`, which start in parallel.

    `settings` are configuration keys of all brokers, `broker_settings` those of single ones by node id, such as racks.
    Topics have three replicas by default, and `min.insync.replicas` is 2. A broker that has lost contact with the
    metadata store for `session_timeout_ms` leaves the cluster. `data_dir` gets a directory for each broker; without
    it they use temporary ones, which `close` removes. Use one object per thread.
    """

    process_type: type[BrokerProcess] = BrokerProcess
    """The class of the brokers. A subclass may run them in another way."""

    def __init__(
        self,
        size: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        broker_settings: Mapping[int, Mapping[str, str]] | None = None,
        session_timeout_ms: int = 2000,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._network = NetworkProcess(range(1, size + 1))
        self._proxies = self._network.proxies
        self.store = self._open_store()
        """The metadata store. Broker N has a session with the name `broker-N`."""
        self._thread = LoopThread("skylog-cluster")
        self._unreachable: set[int] = set()  # paused or cut off
        common = {
            "default.replication.factor": str(min(size, MANY_REPLICAS)),
            "min.insync.replicas": str(min(size, MANY_REPLICAS - 1)),
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": str(min(size, MANY_REPLICAS)),
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
            **(settings or {}),
        }
        self.brokers: dict[int, BrokerProcess] = {}
        """The brokers by node id. The `bootstrap` of one is its private address, which no cut affects."""
        for node_id in self._proxies:
            own = {
                "node.id": str(node_id),
                "advertised.listeners": f"PLAINTEXT://{self.address(node_id)}",
                **(broker_settings or {}).get(node_id, {}),
            }
            home = None if data_dir is None else Path(data_dir) / f"broker-{node_id}"
            self.brokers[node_id] = self.process_type(home, common | own, options=self._store_options())

    def _open_store(self) -> RemoteStore:
        return self._network.store

    def _store_options(self) -> list[str]:
        """The command line options with which a broker finds the store."""
        return ["--metadata-store", self.store.address]

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the brokers that are running, and delete temporary files. Nothing can be started again."""
        try:
            for node_id in self.brokers:
                self._connect(node_id)
            _at_once(BrokerProcess.close, self.brokers.values())
        finally:
            self._thread.close()
            self._network.close()

    # -- addresses

    def address(self, node_id: int) -> str:
        """The address that a broker advertises."""
        return f"{HOST}:{self._proxies[node_id].port}"

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for a client's `bootstrap.servers`."""
        return ",".join(map(self.address, self.brokers))

    # -- processes

    def start(self, *node_ids: int) -> Self:
        """Start brokers, by default those that are not running; returns when all brokers know of each other."""
        _at_once(self._start, node_ids or [each for each, broker in self.brokers.items() if not broker.is_running])
        wait_until(self._is_formed, "the brokers to form a cluster")
        return self

    def _start(self, node_id: int) -> None:
        self._proxies[node_id].forward_to(self.brokers[node_id].start().port)

    def stop(self, *node_ids: int) -> None:
        """Stop brokers cleanly, by default all that are running."""
        _at_once(lambda node_id: self.brokers[node_id].stop(), node_ids or self._running())

    def kill(self, *node_ids: int) -> None:
        """Kill brokers, by default all that are running: SIGKILL."""
        for node_id in node_ids or self._running():
            self.brokers[node_id].kill()
            self._unreachable.discard(node_id)

    def pause(self, node_id: int) -> None:
        """Stop a broker from running, like a long garbage collection or a frozen machine: SIGSTOP."""
        self.brokers[node_id].pause()
        self._unreachable.add(node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused broker run again: SIGCONT."""
        self.brokers[node_id].resume()
        self._unreachable.discard(node_id)

    def _running(self) -> list[int]:
        return [node_id for node_id, broker in self.brokers.items() if broker.is_running]

    # -- the network

    def cut_off(self, node_id: int, *, silently: bool = False) -> None:
        """Cut all connections of a broker: with clients, with the other brokers and with the metadata store.

        They are reset, and further ones refused. With `silently` they stay open, but nothing passes, as in a network
        partition; what was sent meanwhile arrives after `heal`.
        """
        self._unreachable.add(node_id)
        self.store.cut(_name(node_id), silently=silently)
        self._proxies[node_id].cut(silently=silently)
        for other in self.brokers.keys() - {node_id}:
            self.cut_link(node_id, other, silently=silently)

    def heal(self, node_id: int) -> None:
        """End a `cut_off`, and each `cut_link` from this broker."""
        self._connect(node_id)
        self._unreachable.discard(node_id)

    def _connect(self, node_id: int) -> None:
        self.store.heal(_name(node_id))
        self._proxies[node_id].heal()
        for other in self.brokers.keys() - {node_id}:
            self.heal_link(node_id, other)

    def cut_link(self, source: int, target: int, *, silently: bool = False) -> None:
        """Cut the connections that one broker opens to another, and not those in the other direction."""
        self._proxies[target].cut(_name(source), silently=silently)

    def heal_link(self, source: int, target: int) -> None:
        """End a `cut_link`."""
        self._proxies[target].heal(_name(source))

    # -- the state of the cluster, as the metadata store has it

    def partition(self, topic: str, partition: int = 0) -> PartitionImage:
        """The replicas of a partition, those in sync, and the leader. Raises LookupError if it does not exist."""
        try:
            return self._topic(topic).partitions[partition]
        except IndexError:
            raise LookupError(f"topic '{topic}' has no partition {partition}") from None

    def _topic(self, topic: str) -> TopicImage:
        entry = self.store.entries(TOPICS + topic).get(TOPICS + topic)
        if entry is None:
            raise LookupError(f"there is no topic '{topic}'")
        return TopicImage.from_value(topic, entry.value, entry.version)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node id of the leader; -1 if there is none. It may have been killed, until its session expires."""
        return self.partition(topic, partition).leader

    def wait_for_leader(
        self, topic: str, partition: int = 0, *, other_than: int = NO_LEADER, seconds: float = 60.0
    ) -> int:
        """Wait until a partition has a leader, other than a given one, and return it."""

        def found() -> int:
            leader = self.leader_of(topic, partition)
            return 0 if leader in (NO_LEADER, other_than) else leader  # no broker has the id 0

        return wait_until(found, f"a leader of {topic}-{partition}", seconds)

    def wait_until_in_sync(
        self,
        topic: str,
        partition: int | None = None,
        *,
        replicas: Collection[int] | None = None,
        seconds: float = 20.0,
    ) -> None:
        """Wait until all replicas of a partition, by default of all partitions, are in sync.

        With `replicas`, wait until these are in sync and no others.
        """

        def is_in_sync(found: PartitionImage) -> bool:
            return set(found.in_sync_replicas) == set(found.replicas if replicas is None else replicas)

        def are_in_sync() -> bool:
            partitions = self._topic(topic).partitions
            return all(map(is_in_sync, partitions if partition is None else [partitions[partition]]))

        wait_until(are_in_sync, f"the replicas of '{topic}' to be in sync", seconds)

    def _is_formed(self) -> bool:
        """Whether each broker that can be asked knows of the others and of a controller."""
        present = {node_id for node_id in self._running() if node_id not in self._unreachable}
        return all(present <= self._thread.run(_known_brokers(self.brokers[node_id].port)) for node_id in present)


def _name(node_id: int) -> str:
    """The client id of a broker's connections to others, and the name of its session with the store."""
    return f"broker-{node_id}"


async def _known_brokers(port: int) -> set[int]:
    """The brokers in the metadata of the one that listens on `port`; empty while it knows of no controller."""
    try:
        peer = await Peer.connect(HOST, port, client_id="skylog-testing", timeout_s=_PEER_TIMEOUT_S)
        try:
            response = await peer.ask(MetadataRequest(topics=[]))
        finally:
            peer.close()
    except PeerError:
        return set()
    return set() if response.controller_id == NO_CONTROLLER else {broker.node_id for broker in response.brokers}


def _at_once(action: Callable[[Any], object], targets: Iterable[Any]) -> None:
    """Call a function for each target, in parallel. Waits for all of them, then raises the first exception."""
    with ThreadPoolExecutor(thread_name_prefix="skylog-cluster") as threads:
        started = [threads.submit(action, target) for target in targets]
    for each in started:
        each.result()
