"""The faults of a run, and the storm that begins and ends them and notes when."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from os import kill
from typing import Any

from skylog.cluster.image import NO_LEADER
from skylog.cluster.metadata import CONTROLLER
from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.testing import BrokerCluster

from ..cluster import nemesis
from ..cluster.nemesis import VICTIMS
from .timeline import Span, Timeline

Fault = Callable[[BrokerCluster, int], AbstractContextManager[None]]
MAX_AT_ONCE = 2


@contextmanager
def bounced(cluster: BrokerCluster, node_id: int) -> Iterator[None]:
    """Killed and started again at once, five times."""
    for _ in range(5):
        cluster.kill(node_id)
        cluster.start(node_id)
    yield


@contextmanager
def delayed(cluster: Any, node_id: int) -> Iterator[None]:
    """Everything it sends takes longer, and some of it is lost (`tc netem`)."""
    cluster.delay(node_id)
    yield
    cluster.undelay(node_id)


def zookeeper_killed(server: ZooKeeperServer) -> Fault:
    @contextmanager
    def fault(_: BrokerCluster, __: int) -> Iterator[None]:
        server.kill()
        yield
        server.start()

    return fault


def zookeeper_paused(server: ZooKeeperServer) -> Fault:
    @contextmanager
    def fault(_: BrokerCluster, __: int) -> Iterator[None]:
        kill(server.pid, signal.SIGSTOP)
        yield
        kill(server.pid, signal.SIGCONT)

    return fault


def faults_of(server: ZooKeeperServer | None, *, has_netem: bool) -> dict[str, Fault]:
    """The faults that can happen here. Only the store of the test kit can expire a session on request."""
    found: dict[str, Fault] = dict(nemesis.FAULTS) | {"bounced": bounced}
    if server is not None:
        del found["expired"]
        found |= {"ZooKeeper killed": zookeeper_killed(server), "ZooKeeper paused": zookeeper_paused(server)}
    if has_netem:
        found["delayed"] = delayed
    return found


def _has_leader_and_controller(cluster: BrokerCluster, topic: str) -> bool:
    return cluster.leader_of(topic) != NO_LEADER and CONTROLLER in cluster.store.entries(CONTROLLER)


class Storm:
    """Faults of random victims, one or two at a time. `calm` ends all of them."""

    def __init__(
        self,
        cluster: BrokerCluster,
        topic: str,
        faults: dict[str, Fault],
        rng: random.Random,
        timeline: Timeline,
        now_s: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._faults = faults
        self._rng = rng
        self._timeline = timeline
        self._now_s = now_s
        self._under_way: dict[str, tuple[AbstractContextManager[None], Span, float]] = {}
        """Faults that have begun, by victim, with the time at which they end."""

    def blow(self, seconds: float) -> None:
        ends_s = self._now_s() + seconds
        while self._now_s() < ends_s:
            for victim, (_, _, until_s) in list(self._under_way.items()):
                if until_s <= self._now_s():
                    self._end(victim)
            if len(self._under_way) < MAX_AT_ONCE and self._rng.random() < 0.5:
                self._begin()
            time.sleep(self._rng.choice([0.1, 0.5, 1.5]))

    def _begin(self) -> None:
        name = self._rng.choice(sorted(self._faults))
        if name.startswith("ZooKeeper"):
            if self._under_way:
                return  # a broker that starts waits for ZooKeeper, and so would this storm
            node_id, victim = 0, "ZooKeeper"
        elif "ZooKeeper" in self._under_way:
            return
        else:
            kind = self._rng.choice(sorted(VICTIMS))
            if self._under_way and not _has_leader_and_controller(self._cluster, self._topic):
                return  # they may come back only when a fault ends, and that is this storm's to do
            node_id = VICTIMS[kind](self._cluster, self._topic)
            victim = f"broker {node_id}"
        if victim in self._under_way:
            return
        span = Span(name, victim, self._now_s())
        self._timeline.spans.append(span)
        fault = self._faults[name](self._cluster, node_id)
        fault.__enter__()
        self._under_way[victim] = fault, span, self._now_s() + self._rng.choice([0.2, 1.0, 3.0, 8.0])

    def _end(self, victim: str) -> None:
        fault, span, _ = self._under_way.pop(victim)
        fault.__exit__(None, None, None)
        span.ended_s = self._now_s()

    def calm(self) -> None:
        for victim in list(self._under_way):
            self._end(victim)
