"""Drills: short runs whose faults come in the order and at the distance in which others' bugs have shown.

A storm hits a window of some milliseconds once in many thousand seeds. A drill aims at it: several faults form one
sequence, and the seed draws its times. `SEQUENCES` has them, `draw_drill` the scenario of a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from skylog.cluster import PartitionImage
from skylog.model import TopicPartition
from skylog.net.peer import PeerError
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.simulation.clients.connections import Connections
from skylog.simulation.faults import Fault, Heal
from skylog.simulation.machine import Machine
from skylog.simulation.world import STORE, World

TOPIC: Final = "t"
STORM_S: Final = 7.0
LOOK_S: Final = 0.01


class Drill(NamedTuple):
    """A workload and the sequence that hits it, with the kinds of victims."""

    workload: str
    sequence: str
    victim: str


DRILLS: Final = (
    Drill("numbers", "see-saw", "leader"),
    Drill("numbers", "lost while it joins", "follower"),
    Drill("transactions", "late requests", "any"),
    Drill("numbers", "lagging watermark", "follower"),
    Drill("retention", "left behind", "follower"),
    Drill("numbers", "late fetch", "follower"),
)
SETTINGS: Final = {
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "500",
    "log.segment.bytes": "1000000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "auto.leader.rebalance.enable": "false",
}


def drill_of(seed: int) -> Drill:
    return DRILLS[seed // 4 % len(DRILLS)]


def draw_faults(drill: Drill, rng: Random) -> list[Fault]:
    """Draw when the sequence begins, and how long its last fault lasts."""
    plan: list[Fault] = []
    at_s = rng.uniform(0.3, 1.5)
    while at_s < STORM_S:
        plan.append(Fault(len(plan), at_s, drill.sequence, drill.victim, rng.choice([0.3, 0.9, 1.8, 2.7])))
        at_s += rng.uniform(*((0.6, 1.2) if drill.sequence == "late requests" else (1.5, 3.5)))
    return plan


# -- sequences


def _see_saw(world: World, _: Machine, rng: Random) -> Heal:
    """The leader loses its connection to another replica, which leads for a moment. Then the first leads again.

    Each has written what the other does not have, in an epoch that the other does not know.
    """
    image = _partition(world)
    others = [each for each in image.in_sync_replicas if each != image.leader]
    if image.leader not in world.machines or not others:
        return _nothing
    first, second = image.leader, rng.choice(others)
    heal = _block(world, first, second)
    world.later(rng.choice([0.0, 0.1, 0.3]), lambda: _elect(world, second))
    world.later(rng.choice([0.5, 0.8, 1.2]), lambda: _elect(world, first))
    return heal


def _lost_while_it_joins(world: World, machine: Machine, rng: Random) -> Heal:
    """A follower loses power, and again when the leader is about to add it to the in-sync set, slowly."""
    seconds, follower_s = rng.choice([0.3, 1.0, 2.0]), rng.choice([0.0, 0.2])
    leader = _partition(world).leader
    if leader not in world.machines or world.machines[leader] is machine:
        return _nothing
    host = world.machines[leader].host
    links = [(host, STORE)]
    world.network.delay(host, STORE, seconds)
    for link in ((machine.host, host), (host, machine.host)):
        links.append(link)
        world.network.delay(*link, follower_s)
    machine.cut_power(rng)
    world.later(0.1, machine.start)
    again = rng.random() < 0.7

    def lose_again() -> None:
        machine.cut_power(rng)
        world.later(0.01, machine.start)

    if again:
        _when(world, lambda: _is_joining(world, machine.node_id), lose_again, 4.0)

    def heal() -> None:
        for link in links:
            world.network.delay(*link, 0.0)
        machine.start()

    return heal


def _lagging_watermark(world: World, machine: Machine, rng: Random) -> Heal:
    """A follower comes back to a new leader that does not know yet how much is committed."""
    image = _partition(world)
    others = [each for each in image.in_sync_replicas if each not in (image.leader, machine.node_id)]
    if image.leader not in world.machines or image.leader == machine.node_id or not others:
        return _nothing
    hosts = world.machines[image.leader].host, world.machines[others[0]].host
    for link in (hosts, hosts[::-1]):
        world.network.delay(*link, rng.choice([0.2, 0.5, 1.0]))
    machine.kill()
    away_s = rng.uniform(0.4, 1.5)
    world.later(away_s, machine.start)
    world.later(away_s + rng.uniform(-0.2, 0.2), lambda: _elect(world, others[0]))

    def heal() -> None:
        for link in (hosts, hosts[::-1]):
            world.network.delay(*link, 0.0)
        machine.start()

    return heal


def _late_fetch(world: World, machine: Machine, rng: Random) -> Heal:
    """A follower loses power when it has opened a fetch session, and is back before the leader hears of that.

    A fetch in an earlier session is refused as such: the leader ends it when the follower's registration is gone.
    """
    leader = _partition(world).leader
    if leader not in world.machines or world.machines[leader] is machine:
        return _nothing
    host = world.machines[leader].host
    world.network.reset(machine.host, host)

    def lose() -> None:
        machine.cut_power(rng)
        world.later(0.01, machine.start)

    def heal() -> None:
        world.network.heal(machine.host, host)
        machine.start()

    blocked_s = 0.2 + rng.random() * 8 * world.network.latency_s
    world.later(blocked_s, lambda: world.network.block(machine.host, host))
    world.later(blocked_s + rng.random() * 8 * world.network.latency_s, lose)
    world.later(blocked_s + rng.uniform(0.4, 0.9), heal)
    return heal


def _left_behind(_: World, machine: Machine, __: Random) -> Heal:
    """A follower is away while records are deleted that it does not have yet."""
    machine.kill()
    return machine.start


def _late_requests(world: World, _: Machine, rng: Random) -> Heal:
    """What clients of transactions send within a moment arrives seconds later."""
    links = [(f"copier-{number}", each.host) for number in range(2) for each in world.machines.values()]
    for link in links:
        world.network.delay(*link, 3.0)

    def heal() -> None:
        for link in links:
            world.network.delay(*link, 0.0)

    world.later(rng.choice([0.1, 0.2, 0.4]), heal)
    return heal


SEQUENCES: Final[dict[str, Callable[[World, Machine, Random], Heal]]] = {
    "see-saw": _see_saw,
    "lost while it joins": _lost_while_it_joins,
    "lagging watermark": _lagging_watermark,
    "late fetch": _late_fetch,
    "left behind": _left_behind,
    "late requests": _late_requests,
}
LOSING: Final = frozenset({"lost while it joins", "late fetch"})
"""Sequences in which a machine loses what it has not synced."""


# -- their parts


def _nothing() -> None:
    pass


def _partition(world: World) -> PartitionImage:
    return world.topics()[TOPIC].partitions[0]


def _block(world: World, first: int, second: int) -> Heal:
    hosts = world.machines[first].host, world.machines[second].host
    for link in (hosts, hosts[::-1]):
        world.network.block(*link)

    def heal() -> None:
        for link in (hosts, hosts[::-1]):
            world.network.heal(*link)

    return heal


def _is_joining(world: World, node_id: int) -> bool:
    """Whether a leader has asked the store to add a replica to the in-sync set."""
    leader = world.machines[_partition(world).leader].broker if _partition(world).leader in world.machines else None
    partition = leader.replicas.find(TopicPartition(TOPIC, 0)) if leader is not None else None
    leading = partition.leading if partition is not None else None
    return leading is not None and node_id in leading._adding


def _when(world: World, condition: Callable[[], bool], action: Callable[[], object], seconds: float) -> None:
    """Do something as soon as a condition is true, within some time."""
    if condition():
        action()
    elif seconds > 0:
        world.later(LOOK_S, lambda: _when(world, condition, action, seconds - LOOK_S))


def _elect(world: World, node_id: int) -> None:
    """An operator lets a replica lead: it becomes the preferred one, and is elected."""
    replicas = [node_id, *(each for each in _partition(world).replicas if each != node_id)]
    order = ReassignablePartition(partition_index=0, replicas=replicas)
    requests = (
        AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[ReassignableTopic(name=TOPIC, partitions=[order])]),
        ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic=TOPIC, partitions=[0])]),
    )

    async def ask() -> None:
        connections = Connections("operator", world.hosts, world.rng(f"operator/{world.loop.time():.6f}"))
        world.trace.add("operator", f"elects broker-{node_id}")
        try:
            for request in requests:
                await connections.ask_any(request)
        except PeerError as error:
            world.trace.add("operator", f"could not: {error}")

    world.spawn("operator", ask)
