"""The sequences of drills that aim at replication. Each returns how its last fault is healed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import orjson

from skylog.broker.partition import Partition
from skylog.cluster import PartitionImage
from skylog.cluster.metadata import TOPICS
from skylog.model import TopicPartition
from skylog.net.peer import PeerError
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skylog.protocol.apis import ApiKey
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.simulation.clients.connections import Connections
from skylog.simulation.faults import Heal
from skylog.simulation.machine import Machine
from skylog.simulation.world import STORE, World

TOPIC: Final = TopicPartition("t", 0)
LOOK_S: Final = 0.01
ATTEMPTS: Final = 5
_LENGTH_BYTES: Final = 4


def see_saw(world: World, _: Machine, rng: Random) -> Heal:
    """The leader loses its connection to another replica, which leads for a moment. Then the first leads again.

    Each has written what the other does not have, in an epoch that the other does not know.
    """
    image = partition_of(world)
    others = [each for each in image.in_sync_replicas if each != image.leader]
    if image.leader not in world.machines or not others:
        return nothing
    first, second = image.leader, rng.choice(others)
    heal = block(world, first, second)
    world.later(rng.choice([0.0, 0.1, 0.3]), lambda: elect(world, second))
    world.later(rng.choice([0.5, 0.8, 1.2]), lambda: elect(world, first))
    return heal


def lost_while_it_joins(world: World, machine: Machine, rng: Random) -> Heal:
    """A follower loses power, and again while the change that adds it to the in-sync set is on its way to the store.

    Its last process registers before the change arrives, and does not fetch until then.
    """
    leader = partition_of(world).leader
    if leader not in world.machines or world.machines[leader] is machine:
        return nothing
    host = world.machines[leader].host
    links = (machine.host, host), (host, machine.host)
    held_s = rng.uniform(0.4, 2.0)

    def lose_again() -> None:
        for link in links:
            world.network.block(*link)
        machine.cut_power(rng)
        world.later(0.01, machine.start)
        world.later(held_s + 0.2, heal)

    def heal() -> None:
        for link in links:
            world.network.heal(*link)
        machine.start()

    def hold() -> None:
        world.network.hold_next(host, lambda data: adds_to_in_sync_set(data, machine.node_id), held_s, lose_again)

    machine.cut_power(rng)
    world.later(0.1, machine.start)
    when(world, lambda: machine.node_id not in partition_of(world).in_sync_replicas, hold, 4.0)
    return machine.start


def lagging_watermark(world: World, machine: Machine, rng: Random) -> Heal:
    """A follower comes back to a new leader that does not know yet how much is committed.

    The former leader has committed a lot at once when the follower had left the in-sync set, and died with that.
    """
    image = partition_of(world)
    others = [each for each in image.in_sync_replicas if each not in (image.leader, machine.node_id)]
    if image.leader not in world.machines or image.leader == machine.node_id or not others:
        return nothing
    leader, other = image.leader, others[0]
    heal_follower = block(world, leader, machine.node_id)
    hosts = world.machines[leader].host, world.machines[other].host

    def silence() -> None:
        world.network.block(*hosts)
        known = watermark(world, leader)
        when(world, lambda: watermark(world, leader) > known, lambda: elect(world, other), 1.0)
        world.later(rng.uniform(0.5, 1.5), lambda: world.network.heal(*hosts))

    when(world, lambda: is_leaving(world, machine.node_id), silence, 3.0)

    def heal() -> None:
        heal_follower()
        world.network.heal(*hosts)

    return heal


def late_fetch(world: World, machine: Machine, rng: Random) -> Heal:
    """A follower loses power with the first fetch of a session on the way, and is back before that arrives.

    Nothing is committed meanwhile, because the other follower is cut off: what the fetch says is enough to join.
    """
    image = partition_of(world)
    leader = image.leader
    if leader not in world.machines or world.machines[leader] is machine:
        return nothing
    host = world.machines[leader].host
    others = [each for each in image.replicas if each not in (leader, machine.node_id)]
    held_s = rng.uniform(0.3, 0.9)

    def lose() -> None:
        heals.extend(block(world, leader, each) for each in others)
        world.network.block(machine.host, host)
        machine.cut_power(rng)
        world.later(0.01, machine.start)
        world.later(held_s + 0.2, heal)

    def heal() -> None:
        for each in heals:
            each()
        world.network.heal(machine.host, host)
        machine.start()

    heals: list[Heal] = []
    world.network.hold_next(machine.host, is_request(ApiKey.FETCH), held_s, lose)
    world.network.reset(machine.host, host)
    return heal


def left_behind(_: World, machine: Machine, __: Random) -> Heal:
    """A follower is away while records are deleted that it does not have yet."""
    machine.kill()
    return machine.start


def stalled_answer(world: World, _: Machine, rng: Random) -> Heal:
    """A leader cannot send to a follower what that has fetched. When it can, it has other records in the place.

    It was cut off from another replica, which leads now. The follower does not know that yet.
    """
    image = partition_of(world)
    others = [each for each in image.in_sync_replicas if each != image.leader]
    if image.leader not in world.machines or len(others) < 2:
        return nothing
    other, follower = rng.sample(others, 2)
    hosts = [world.machines[each].host for each in (image.leader, follower)]
    heal_leader = block(world, image.leader, other)
    world.network.stall(*hosts)
    world.network.block(STORE, hosts[1])
    world.later(rng.uniform(0.2, 0.5), lambda: elect(world, other))
    when(world, lambda: partition_of(world).leader == other, heal_leader, 3.0)

    def heal() -> None:
        heal_leader()
        world.network.let_send(*hosts)
        world.network.heal(STORE, hosts[1])

    def go_on() -> None:
        world.network.let_send(*hosts)
        world.later(0.2, heal)

    known = watermark(world, image.leader)
    replica = replica_of(world, image.leader)
    before = replica.leader_epoch if replica is not None else 0

    def has_other_records() -> bool:
        now = replica_of(world, image.leader)
        return now is not None and now.log.epochs.latest > before and now.high_watermark >= known

    when(world, has_other_records, go_on, 2.5)
    return heal


# -- their parts


def nothing() -> None:
    pass


def partition_of(world: World, name: TopicPartition = TOPIC) -> PartitionImage:
    return world.topics()[name.topic].partitions[name.partition]


def block(world: World, first: int, second: int) -> Heal:
    hosts = world.machines[first].host, world.machines[second].host
    for link in (hosts, hosts[::-1]):
        world.network.block(*link)

    def heal() -> None:
        for link in (hosts, hosts[::-1]):
            world.network.heal(*link)

    return heal


def replica_of(world: World, node_id: int) -> Partition | None:
    broker = world.machines[node_id].broker
    return broker.replicas.find(TOPIC) if broker is not None else None


def watermark(world: World, node_id: int) -> int:
    replica = replica_of(world, node_id)
    return replica.high_watermark if replica is not None else -1


def is_leaving(world: World, node_id: int) -> bool:
    """Whether the leader has asked the store to remove a replica from the in-sync set."""
    leader = partition_of(world).leader
    replica = replica_of(world, leader) if leader in world.machines else None
    return replica is not None and replica.leading is not None and node_id in replica.leading.removing


def when(world: World, condition: Callable[[], bool], action: Callable[[], object], seconds: float) -> None:
    """Do something as soon as a condition is true, within some time."""
    if condition():
        action()
    elif seconds > 0:
        world.later(LOOK_S, lambda: when(world, condition, action, seconds - LOOK_S))


def elect(world: World, node_id: int, name: TopicPartition = TOPIC) -> None:
    """An operator lets a replica lead: it becomes the preferred one, and is elected."""
    replicas = [node_id, *(each for each in partition_of(world, name).replicas if each != node_id)]
    order = ReassignablePartition(partition_index=name.partition, replicas=replicas)
    topics = [ReassignableTopic(name=name.topic, partitions=[order])]
    requests = (
        AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=topics),
        ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic=name.topic, partitions=[name.partition])]),
    )

    async def ask() -> None:
        connections = Connections("operator", world.hosts, world.rng(f"operator/{world.loop.time():.6f}"))
        world.trace.add("operator", f"elects broker-{node_id} for {name}")
        for request in requests:
            for _ in range(ATTEMPTS):
                try:
                    await connections.ask_any(request)
                    break
                except PeerError as error:
                    world.trace.add("operator", f"could not: {error}")
                    await connections.pause()

    world.spawn("operator", ask)


# -- segments


def is_request(key: ApiKey) -> Callable[[bytes], bool]:
    return lambda data: int.from_bytes(data[_LENGTH_BYTES : _LENGTH_BYTES + 2], "big") == key


def adds_to_in_sync_set(data: bytes, node_id: int) -> bool:
    """Whether a segment for the store has a state of the topic in which a replica is in sync."""
    change = _change_of_topic(data)
    return change is not None and node_id in change["partitions"][TOPIC.partition]["in_sync_replicas"]


def _change_of_topic(data: bytes) -> dict[str, list[dict[str, list[int]]]] | None:
    if b'"commit"' not in data:
        return None
    for path, value, *_ in orjson.loads(data[_LENGTH_BYTES:])["operations"]:
        if path == TOPICS + TOPIC.topic and isinstance(value, dict):
            return value
    return None
