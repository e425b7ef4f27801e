"""The sequences of drills that aim at transactions."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Final

from skylog.broker.state_topic import partition_of as state_partition_of
from skylog.model import TRANSACTION_STATE_TOPIC, TopicPartition
from skylog.net.peer import PeerError
from skylog.protocol.apis import ApiKey
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.simulation.clients.connections import Connections
from skylog.simulation.faults import Heal
from skylog.simulation.machine import Machine
from skylog.simulation.sequences import block, elect, is_request, nothing, partition_of
from skylog.simulation.world import World

COPIERS: Final = 2
COPIES: Final = "copies"
NEW_IDS: Final = 8
NEW_ID: Final = 1
"""The type of key for FindCoordinator."""


def late_requests(world: World, _: Machine, rng: Random) -> Heal:
    """What clients of transactions send within a moment arrives seconds later, or one request of one kind does."""
    kind = rng.choice([None, ApiKey.PRODUCE, ApiKey.END_TXN])
    if kind is not None:
        for number in range(COPIERS):
            world.network.hold_next(f"copier-{number}", is_request(kind), rng.uniform(0.6, 2.5))
        return nothing
    links = [(f"copier-{number}", each.host) for number in range(COPIERS) for each in world.machines.values()]
    for link in links:
        world.network.delay(*link, 3.0)

    def heal() -> None:
        for link in links:
            world.network.delay(*link, 0.0)

    world.later(rng.choice([0.1, 0.2, 0.4]), heal)
    return heal


def late_markers(world: World, _: Machine, rng: Random) -> Heal:
    """The markers of a coordinator do not arrive until another one has written them, and the next transaction is open.

    That takes so long that the last batch of the producer is older than the time after which producers expire.
    """
    coordinator = _coordinator(world, f"copier-{rng.randrange(COPIERS)}")
    target = TopicPartition(COPIES, rng.randrange(COPIERS))
    leader = partition_of(world, target).leader
    if coordinator is None or leader not in world.machines:
        return nothing
    state, node_id = coordinator
    others = [each for each in partition_of(world, state).in_sync_replicas if each not in (node_id, leader)]
    if node_id == leader or not others:
        return nothing
    link = world.machines[node_id].host, world.machines[leader].host
    world.network.block(*link)
    elected_s = rng.uniform(2.5, 3.5)
    world.later(elected_s, lambda: elect(world, others[0], state))
    world.later(elected_s + rng.uniform(0.0, 0.4), lambda: world.network.heal(*link))
    return nothing


def lonely_coordinator(world: World, _: Machine, rng: Random) -> Heal:
    """A coordinator cannot store anything, because its followers are away. Producers start, and try again."""
    coordinator = _coordinator(world, f"copier-{rng.randrange(COPIERS)}")
    if coordinator is None:
        return nothing
    node_id = coordinator[1]
    heals = [block(world, node_id, each) for each in world.machines if each != node_id]
    name = f"new-{world.loop.time():.6f}"
    world.later(rng.uniform(0.5, 1.5), lambda: world.spawn(name, lambda: _start_producers(world, name)))

    def heal() -> None:
        for each in heals:
            each()

    world.later(2.2, heal)
    return nothing


async def _start_producers(world: World, name: str) -> None:
    """Start producers of ids that nobody has used before. None of them tries twice."""
    connections = Connections(name, world.hosts, world.rng(name), 0.5)
    for number in range(NEW_IDS):
        new_id = f"{name}-{number}"
        with suppress(PeerError):
            node_id = await connections.coordinator(new_id, NEW_ID)
            await connections.ask(node_id, InitProducerIdRequest(transactional_id=new_id, transaction_timeout_ms=9000))
        await connections.pause(0.2)
    connections.close()


def _coordinator(world: World, transactional_id: str) -> tuple[TopicPartition, int] | None:
    """Return the partition of a transactional id and the broker that leads it; None if it has no leader."""
    topic = world.topics().get(TRANSACTION_STATE_TOPIC)
    if topic is None:
        return None
    name = TopicPartition(TRANSACTION_STATE_TOPIC, state_partition_of(transactional_id, len(topic.partitions)))
    leader = topic.partitions[name.partition].leader
    return (name, leader) if leader in world.machines else None
