"""Faults of a cluster, as blocks: a fault begins with the block and is healed at its end.

    victim = VICTIMS["leader"](cluster, "t")
    with FAULTS["killed"](cluster, victim):
        ...

Every fault leaves two brokers that reach each other, the clients and the store, so the cluster goes on without the
victim. `Storm` has no such limit.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from skylog.cluster.metadata import CONTROLLER
from skylog.testing import BrokerCluster, wait_until

SESSION_MS = 1500
SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": "100000",
    "log.index.interval.bytes": "2000",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.cleaner.enable": "false",  # replicas compact at different times, and then differ
}

Fault = Callable[[BrokerCluster, int], AbstractContextManager[None]]
Victim = Callable[[BrokerCluster, str], int]


def new_cluster(size: int = 3, **settings: str) -> BrokerCluster:
    """Brokers whose sessions expire soon. Names of settings have underscores in place of dots."""
    more = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerCluster(size, SETTINGS | more, session_timeout_ms=SESSION_MS)


# -- who


def leader(cluster: BrokerCluster, topic: str) -> int:
    return cluster.wait_for_leader(topic)


def follower(cluster: BrokerCluster, topic: str) -> int:
    """A replica that does not lead the first partition, and if possible is not the controller."""
    others = [each for each in cluster.partition(topic).replicas if each != leader(cluster, topic)]
    return min(others, key=lambda each: each == controller(cluster, topic))


def controller(cluster: BrokerCluster, _: str) -> int:
    def found() -> int:
        entry = cluster.store.entries(CONTROLLER).get(CONTROLLER)
        return int(entry.value["node_id"]) if entry is not None else 0

    return wait_until(found, "a controller")


VICTIMS: dict[str, Victim] = {"leader": leader, "follower": follower, "controller": controller}


# -- what


@contextmanager
def stopped(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    cluster.stop(node_id)
    yield
    cluster.start(node_id)


@contextmanager
def killed(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    cluster.kill(node_id)
    yield
    cluster.start(node_id)


@contextmanager
def paused(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    """Longer than the session lasts."""
    cluster.pause(node_id)
    began = time.monotonic()
    yield
    time.sleep(max(0.0, began + SESSION_MS / 1000 + 0.2 - time.monotonic()))
    cluster.resume(node_id)


@contextmanager
def expired(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    """The store ends the session. The broker opens another one by itself."""
    cluster.store.expire(f"broker-{node_id}")
    yield


@contextmanager
def cut_off(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    cluster.cut_off(node_id)
    yield
    cluster.heal(node_id)


@contextmanager
def cut_off_silently(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    cluster.cut_off(node_id, silently=True)
    yield
    cluster.heal(node_id)


@contextmanager
def mute(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    """It cannot fetch from the others. They fetch from it, and clients and the store reach it."""
    others = cluster.brokers.keys() - {node_id}
    for other in others:
        cluster.cut_link(node_id, other, silently=True)
    yield
    for other in others:
        cluster.heal_link(node_id, other)


@contextmanager
def unheard(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    """One of the others cannot fetch from it."""
    other = min(cluster.brokers.keys() - {node_id})
    cluster.cut_link(other, node_id)
    yield
    cluster.heal_link(other, node_id)


FAULTS: dict[str, Fault] = {
    "stopped": stopped,
    "killed": killed,
    "paused": paused,
    "expired": expired,
    "cut off": cut_off,
    "cut off silently": cut_off_silently,
    "mute": mute,
    "unheard": unheard,
}


class Storm:
    """Faults of any brokers, at any time, all of them at once perhaps. `calm` heals everything."""

    def __init__(self, cluster: BrokerCluster, seed: str) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._under_way: dict[int, contextlib.ExitStack] = {}
        self.told: list[str] = []

    def blow(self, seconds: float) -> None:
        """Begin and end faults for some time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            node_id = self._random.choice(list(self._cluster.brokers))
            if node_id in self._under_way:
                self._end(node_id)
            else:
                self._begin(node_id)
            time.sleep(self._random.choice([0, 0.05, 0.3, 1.0]))

    def _begin(self, node_id: int) -> None:
        name = self._random.choice(list(FAULTS))
        self.told.append(f"{node_id} {name}")
        self._under_way[node_id] = contextlib.ExitStack()
        self._under_way[node_id].enter_context(FAULTS[name](self._cluster, node_id))

    def _end(self, node_id: int) -> None:
        self.told.append(f"{node_id} healed")
        self._under_way.pop(node_id).close()

    def calm(self) -> None:
        for node_id in self._random.sample(list(self._under_way), len(self._under_way)):
            self._end(node_id)
