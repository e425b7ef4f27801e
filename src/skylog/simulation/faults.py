"""Faults: drawn from the seed before a run, applied at their time, healed at their end.

A plan names victims by what they are at that moment ("the leader"), so that it does not depend on the run. `Storm`
applies it. Some faults are limited, so that what remains is still promised: see `Storm._may`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from random import Random
from typing import Final

from skylog.cluster.metadata import CONTROLLER
from skylog.simulation.machine import Machine
from skylog.simulation.world import STORE, World

Heal = Callable[[], object]
VICTIMS: Final = ("leader", "follower", "controller", "any")


@dataclass(frozen=True)
class Fault:
    """A fault that begins at `at_s` and is healed `lasts_s` later. `number` is its place in the plan."""

    number: int
    at_s: float
    kind: str
    victim: str
    lasts_s: float

    def __str__(self) -> str:
        return f"{self.number}: at {self.at_s:.1f} s {self.kind} of {self.victim} for {self.lasts_s:.1f} s"


def draw_plan(rng: Random, kinds: Sequence[str], count: int, seconds: float) -> list[Fault]:
    """Draw faults in the order of their times. Some come in bursts, in which the same victim is hit again."""
    plan: list[Fault] = []
    at_s = rng.uniform(0.5, 3.0)
    while len(plan) < count and at_s < seconds:
        kind, victim = rng.choice(kinds), rng.choice(VICTIMS)
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            plan.append(Fault(len(plan), at_s, kind, victim, rng.choice([0.1, 0.5, 1.5, 4.0, 9.0])))
            at_s += rng.choice([0.0, 0.2, 1.0, 2.0])
        at_s += rng.expovariate(1 / 1.2)
    return plan[:count]


class Storm:
    """Applies a plan to a world. `survives_power_cuts`: every acknowledged message is on disk on all replicas."""

    def __init__(
        self,
        world: World,
        topic: str,
        partitions: int,
        *,
        survives_power_cuts: bool,
        kinds: Mapping[str, Callable[[World, Machine, Random], Heal]],
        losses: Set[str],
    ) -> None:
        self._world = world
        self._topic = topic
        self._partitions = partitions
        self._survives_power_cuts = survives_power_cuts
        self._kinds = kinds
        self._losses = losses
        self._weakened: Machine | None = None
        """The one machine that may have lost something, until all replicas are in sync again."""
        self._is_damaged = False  # for good: damage may stay undetected
        self.client_faults: dict[str, Callable[[Random], None]] = {}
        """Faults of clients by kind."""

    async def blow(self, plan: Sequence[Fault]) -> None:
        """Apply each fault at its time. Return when the last has begun."""
        began_at = self._world.loop.time()
        for fault in plan:
            await asyncio.sleep(max(0.0, began_at + fault.at_s - self._world.loop.time()))
            self._apply(fault)

    def _apply(self, fault: Fault) -> None:
        world = self._world
        rng = world.rng(f"fault/{fault.number}")
        if fault.kind in self.client_faults:
            world.trace.add("storm", f"{fault}")
            self.client_faults[fault.kind](rng)
            return
        machine = self._victim(fault.victim, rng)
        if not self._may(fault, machine):
            return
        world.trace.add("storm", f"{fault}: {machine.host}")
        heal = self._kinds[fault.kind](world, machine, rng)
        world.later(fault.lasts_s, lambda: self._heal(fault, heal))

    def _heal(self, fault: Fault, heal: Callable[[], object]) -> None:
        self._world.trace.add("storm", f"{fault.number} is healed")
        heal()

    def _may(self, fault: Fault, machine: Machine) -> bool:
        """Whether a fault leaves enough: without flushes only one machine may lose what it has not synced.

        A damaged replica counts as well, and so does one whose disk fails. A broker that was killed has lost nothing,
        but does not know that. So it leaves the in-sync sets to others, which must not be those that have lost.
        """
        if fault.kind == "kill":
            return self._weakened in (None, machine) or self._has_recovered()
        if fault.kind not in self._losses or (self._survives_power_cuts and fault.kind == "power cut"):
            return True
        if self._weakened is not machine and (self._is_damaged or not self._has_recovered()):
            return False
        self._weakened = machine
        self._is_damaged |= fault.kind == "bit flip"
        return True

    def _has_recovered(self) -> bool:
        """Whether all brokers serve and all replicas are in sync: the store does not show at once who has ended."""
        if any(machine.broker is None for machine in self._world.wanted_machines):
            return False
        return all(
            len(each.in_sync_replicas) == len(each.replicas)
            for topic in self._world.topics().values()
            for each in topic.partitions
        )

    def _victim(self, kind: str, rng: Random) -> Machine:
        machines = self._world.machines
        topic = self._world.topics().get(self._topic)
        chosen = rng.choice(sorted(machines))
        partition = topic.partitions[rng.randrange(len(topic.partitions))] if topic is not None else None
        if kind == "controller":
            entry = self._world.sessions.store.entries(CONTROLLER).get(CONTROLLER)
            chosen = entry.value["node_id"] if entry is not None else chosen
        elif partition is not None and kind == "leader" and partition.leader in machines:
            chosen = partition.leader
        elif partition is not None and kind == "follower":
            chosen = rng.choice([each for each in partition.replicas if each != partition.leader] or [chosen])
        return machines[chosen]

    def calm(self) -> None:
        """Heal everything. Brokers whose disk has failed are started again."""
        world = self._world
        world.trace.add("storm", "calm")
        world.network.heal_all()
        if world.store.is_paused:
            world.loop.resume(world.store)
        for machine in world.machines.values():
            machine.resume()
            has_failed = bool(machine.disk.faults.failing)
            machine.disk.faults.failing.clear()
            machine.disk.faults.free_bytes = None
            if machine.process is not None:
                machine.process.disk_delay_s = 0.0
                if has_failed:
                    machine.kill()
            machine.start()


# -- what can happen to a machine: each returns how to heal it


def _kill(_: World, machine: Machine, __: Random) -> Heal:
    machine.kill()
    return machine.start


def _stop(_: World, machine: Machine, __: Random) -> Heal:
    machine.stop()
    return machine.start


def _pause(_: World, machine: Machine, __: Random) -> Heal:
    machine.pause()
    return machine.resume


def _cut_power(_: World, machine: Machine, rng: Random) -> Heal:
    machine.cut_power(rng)
    return machine.start


def _expire(world: World, machine: Machine, _: Random) -> Heal:
    world.store.call(world.loop.create_task, world.sessions.expire(machine.host))
    return _nothing


def _nothing() -> None:
    pass


def _block(world: World, links: Sequence[tuple[str, str]]) -> Heal:
    for link in links:
        world.network.block(*link)

    def heal() -> None:
        for link in links:
            world.network.heal(*link)

    return heal


def _others(world: World, machine: Machine) -> list[str]:
    return [each.host for each in world.machines.values() if each is not machine]


def _links_with(machine: Machine, hosts: Sequence[str]) -> list[tuple[str, str]]:
    return [link for other in hosts for link in ((machine.host, other), (other, machine.host))]


def _isolate(world: World, machine: Machine, _: Random) -> Heal:
    return _block(world, _links_with(machine, [*_others(world, machine), STORE]))


def _mute(world: World, machine: Machine, rng: Random) -> Heal:
    """Others do not hear it, in some directions."""
    hosts = [*_others(world, machine), *rng.choice([[], [STORE]])]
    return _block(world, [(machine.host, other) for other in hosts])


def _deafen(world: World, machine: Machine, rng: Random) -> Heal:
    hosts = [*_others(world, machine), *rng.choice([[], [STORE]])]
    return _block(world, [(other, machine.host) for other in hosts])


def _cut_link(world: World, machine: Machine, rng: Random) -> Heal:
    other = rng.choice(_others(world, machine))
    links = [(machine.host, other), (other, machine.host)]
    return _block(world, rng.choice([links, links[:1], links[1:]]))


def _lose_store(world: World, machine: Machine, rng: Random) -> Heal:
    links = [(machine.host, STORE), (STORE, machine.host)]
    return _block(world, rng.choice([links, links, links[:1], links[1:]]))


def _store_away(world: World, _: Machine, __: Random) -> Heal:
    return _block(
        world, [link for each in world.machines.values() for link in ((each.host, STORE), (STORE, each.host))]
    )


def _pause_store(world: World, _: Machine, __: Random) -> Heal:
    """The store stands still for all. As after a restart of ZooKeeper, sessions have their whole time afterwards."""
    world.store.pause()

    def resume() -> None:
        if world.store.is_paused:
            world.sessions.touch()
            world.loop.resume(world.store)

    return resume


def _delay(world: World, machine: Machine, rng: Random) -> Heal:
    seconds = rng.choice([0.01, 0.1, 0.5])
    links = _links_with(machine, [*_others(world, machine), STORE])
    for link in links:
        world.network.delay(*link, seconds)

    def heal() -> None:
        for link in links:
            world.network.delay(*link, 0.0)

    return heal


def _reset(world: World, machine: Machine, rng: Random) -> Heal:
    world.network.reset(machine.host, rng.choice([*_others(world, machine), STORE]))
    return _nothing


def _slow_disk(_: World, machine: Machine, rng: Random) -> Heal:
    process = machine.process
    if process is None:
        return _nothing
    process.disk_delay_s = rng.choice([0.05, 0.5, 3.0])

    def heal() -> None:
        process.disk_delay_s = 0.0

    return heal


def _full_disk(_: World, machine: Machine, rng: Random) -> Heal:
    faults = machine.disk.faults
    faults.free_bytes = rng.randrange(500)

    def heal() -> None:
        faults.free_bytes = None

    return heal


def _failing_disk(_: World, machine: Machine, rng: Random) -> Heal:
    """Reads, writes or syncs fail. The operator replaces the cable and starts the broker again."""
    faults, process = machine.disk.faults, machine.process
    faults.failing.add(rng.choice(["read", "write", "sync"]))

    def heal() -> None:
        faults.failing.clear()
        if machine.process is not None and machine.process is process:
            machine.kill()
            machine.start()

    return heal


def _jump_clock(_: World, machine: Machine, rng: Random) -> Heal:
    machine.clock.skew_ms += rng.choice([-3_600_000, -5_000, 5_000, 3_600_000])
    return _nothing


def _flip_bit(world: World, machine: Machine, rng: Random) -> Heal:
    where = machine.disk.flip_bit(rng)
    if where is not None:
        world.has_damage = True
        world.trace.add(machine.host, f"has a flipped bit in {where}")
    return _nothing


KINDS: Final[dict[str, Callable[[World, Machine, Random], Heal]]] = {
    "kill": _kill,
    "stop": _stop,
    "pause": _pause,
    "power cut": _cut_power,
    "expired session": _expire,
    "isolation": _isolate,
    "mute": _mute,
    "deaf": _deafen,
    "cut link": _cut_link,
    "lost store": _lose_store,
    "store away": _store_away,
    "paused store": _pause_store,
    "delay": _delay,
    "reset": _reset,
    "slow disk": _slow_disk,
    "full disk": _full_disk,
    "failing disk": _failing_disk,
    "clock jump": _jump_clock,
    "bit flip": _flip_bit,
}
LOSSES: Final = frozenset({"power cut", "bit flip", "failing disk"})
"""Faults after which a replica may not have what was acknowledged."""
