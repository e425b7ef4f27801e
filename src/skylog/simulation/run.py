"""One run: builds the world of a scenario, lets the storm blow, heals everything, and checks what is left."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from skylog.simulation.audit import Audit
from skylog.simulation.clients.admin import create_topic
from skylog.simulation.clients.connections import Connections
from skylog.simulation.drills import LOSING, SEQUENCES
from skylog.simulation.faults import KINDS, LOSSES, Storm
from skylog.simulation.loop import DeadlockError, WatchedError
from skylog.simulation.scenario import Scenario
from skylog.simulation.seams import Patches, begin_epochs_at, simulated
from skylog.simulation.topic_reading import describe_disks
from skylog.simulation.trace import Trace
from skylog.simulation.upkeep import (
    CompactedTransactions,
    CompactionOfClassicGroup,
    CompactionOfConsumerGroup,
    Reassignment,
    ReassignmentOfClassicGroup,
    ReassignmentOfCompactedTransactions,
    ReassignmentOfConsumerGroup,
    ReassignmentOfTransactions,
    ReassignmentWithRetention,
    Recreation,
    RecreationOfConsumerGroup,
    RecreationOfTransactions,
    Retention,
)
from skylog.simulation.watch import Watch
from skylog.simulation.workloads import (
    HEAL_S,
    TOPIC,
    ClassicGroup,
    ConsumerGroup,
    StaticClassicGroup,
    StaticConsumerGroup,
    Transactions,
    Workload,
    wait_until,
)
from skylog.simulation.world import TraceHandler, World

logger = logging.getLogger("simulation")  # not that of brokers, which goes to the trace

START_S: Final = 30.0
_MEMORY: Final = Path("/dev/shm")

WORKLOADS: Final[dict[str, type[Workload]]] = {
    "numbers": Workload,
    "classic group": ClassicGroup,
    "consumer group": ConsumerGroup,
    "transactions": Transactions,
    "audit": Audit,
    "compacted transactions": CompactedTransactions,
    "compaction, classic group": CompactionOfClassicGroup,
    "compaction, consumer group": CompactionOfConsumerGroup,
    "retention": Retention,
    "reassignment": Reassignment,
    "reassignment, classic group": ReassignmentOfClassicGroup,
    "reassignment, consumer group": ReassignmentOfConsumerGroup,
    "recreation": Recreation,
    "recreation, consumer group": RecreationOfConsumerGroup,
    "recreation, transactions": RecreationOfTransactions,
    "reassignment, transactions": ReassignmentOfTransactions,
    "reassignment, compacted transactions": ReassignmentOfCompactedTransactions,
    "reassignment, retention": ReassignmentWithRetention,
    "static classic group": StaticClassicGroup,
    "static consumer group": StaticConsumerGroup,
}

Undo = Callable[[Patches], None]


@dataclass(frozen=True)
class Visit:
    """Somebody who looks into the world of a run, at a time of its trace."""

    at_s: float
    call: Callable[[World], None]


@dataclass
class Result:
    """What a run has shown. `violations` is empty if all is well."""

    scenario: Scenario
    violations: list[str]
    trace: Trace
    seconds: float
    acknowledged: int
    steps: int
    disks: list[str] = field(default_factory=list)
    """What is on the disks after a failed run."""


async def live_through(world: World, workload: Workload) -> list[str]:
    """Live through a scenario. Return the violations."""
    scenario = workload.scenario
    await world.start()
    if not await wait_until(world, lambda: all(each.broker for each in world.wanted_machines), START_S):
        return ["not ready: the brokers do not start"]
    world.spawn("admin", lambda: _create_topics(world, workload))
    if not await wait_until(world, lambda: _has_topics(world, workload), START_S):
        return ["not ready: the topics are not created"]
    workload.start()
    storm = Storm(
        world,
        TOPIC,
        scenario.partitions,
        survives_power_cuts=scenario.survives_power_cuts,
        kinds=KINDS | SEQUENCES,
        losses=LOSSES | LOSING,
    )
    storm.client_faults["kill client"] = workload.kill_client
    await storm.blow(scenario.plan)
    await asyncio.sleep(2.0)
    workload.calm()
    storm.calm()
    is_whole = await wait_until(world, lambda: _is_whole(world), HEAL_S)
    stuck = [] if is_whole else [f"stuck: replicas are not in sync {HEAL_S:g} s after everything has healed"]
    return [*stuck, *await workload.finish()]


def _has_topics(world: World, workload: Workload) -> bool:
    return workload.topics.keys() <= world.topics().keys() and _is_whole(world)


async def _create_topics(world: World, workload: Workload) -> None:
    connections = Connections("admin", world.hosts, world.rng("admin"))
    for topic, configs in workload.topics.items():
        await create_topic(connections, topic, workload.scenario.partitions, configs)


def _is_whole(world: World) -> bool:
    """Whether all brokers serve, and all replicas are in sync."""
    return all(each.broker is not None for each in world.wanted_machines) and all(
        set(each.in_sync_replicas) == set(each.replicas) and not each.is_reassigned
        for topic in world.topics().values()
        for each in topic.partitions
    )


def run_scenario(scenario: Scenario, undo: Undo | None = None, visit: Visit | None = None) -> Result:
    """Run a scenario, with a mend undone if one is given. `visit` is called in the middle, at its time."""
    base = Path(tempfile.mkdtemp(prefix="skylog-simulation-", dir=_MEMORY if _MEMORY.is_dir() else None))
    world = World(f"run/{scenario.seed}", base, scenario.settings, scenario.size, scenario.session_timeout_ms)
    world.network.latency_s, world.loop.thread_delay_s = scenario.latency_s, scenario.thread_delay_s
    workload = WORKLOADS[scenario.workload](world, scenario)
    began_at = world.loop.time()
    disks: list[str] = []
    if visit is not None:
        world.later(max(visit.at_s - began_at, 0.0), lambda: visit.call(world))
    try:
        with simulated(world.network, world.disks, world.seed) as patches, _traced(world):
            if scenario.first_epoch:
                begin_epochs_at(patches, scenario.first_epoch)
            if undo is not None:
                undo(patches)
            Watch(world).install(patches)
            try:
                found = world.loop.run_until_complete(live_through(world, workload))
            except DeadlockError as error:
                found = [f"stuck: {error}"]
            except WatchedError:
                found = []  # it is one of the problems
            except Exception as error:  # of the simulation itself: the other seeds go on
                logger.exception("seed %d", scenario.seed)
                found = [f"the run itself failed: {type(error).__name__}: {error}"]
            seconds = world.loop.time() - began_at
            if world.problems or found:
                disks = describe_disks(world)
            world.end()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    acknowledged, steps = len(workload.history.acknowledged), world.loop.steps
    return Result(scenario, [*world.problems, *found], world.trace, seconds, acknowledged, steps, disks)


@contextmanager
def _traced(world: World) -> Iterator[None]:
    """Send the log lines of brokers to the trace, and nowhere else."""
    loggers = [logging.getLogger(name) for name in ("skylog", "asyncio")]
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    handler = TraceHandler(world)
    for each in loggers:
        each.handlers, each.propagate = [handler], False
        each.setLevel(logging.INFO)
    try:
        yield
    finally:
        for each, (handlers, level, propagates) in zip(loggers, before, strict=True):
            each.handlers, each.propagate = handlers, propagates
            each.setLevel(level)
