"""What a seed stands for: the settings of the cluster, its clients and the faults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from skylog.simulation import drills
from skylog.simulation.clients.connections import REQUEST_S
from skylog.simulation.drills import draw_faults, drill_of
from skylog.simulation.faults import KINDS, Fault, draw_plan

SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.interval.bytes": "200",
    "log.cleaner.enable": "false",
}
STORM_S: Final = 20.0
WORKLOADS: Final = ("numbers", "classic group", "numbers", "consumer group", "upkeep", "transactions")
"""Which clients a run has beside producers and readers, by the seed."""

UPKEEP: Final = (
    "compaction, classic group",
    "retention",
    "reassignment, classic group",
    "recreation",
    "compaction, consumer group",
    "reassignment",
    "compaction, classic group",
    "retention",
    "reassignment, consumer group",
    "recreation",
    "compaction, consumer group",
    "reassignment",
)
"""What else happens to the logs of a run with this workload, by the seed."""

RARE: Final = ((12, 0, "audit"), (72, 47, "compacted transactions"))
"""Workloads of the seeds with this remainder, in place of the others."""

UPKEEP_SETTINGS: Final = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "700",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "1500",
    "log.segment.delete.delay.ms": "1000",
}
REASSIGNMENT_SIZE: Final = 5

LATER: Final = 30_000
"""Storms from this seed on have `LATER_WORKLOADS`, too, and a reader with fetch sessions. Others stay the same."""

LATER_WORKLOADS: Final = (
    "reassignment, transactions",
    "reassignment, compacted transactions",
    "reassignment, retention",
    "recreation, transactions",
    "static classic group",
    "static consumer group",
)
LATER_SHARE: Final = 0.6
LATER_RARE: Final = 10, 8, "recreation, consumer group"
"""The workload of later seeds with this remainder, whatever else they would have."""
LATER_SETTINGS: Final = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@dataclass(frozen=True)
class Scenario:
    """All that is drawn before a run. `plan` may be cut to its first faults."""

    seed: int
    settings: dict[str, str]
    topic_configs: dict[str, str]
    plan: list[Fault] = field(default_factory=list)
    size: int = 3
    partitions: int = 2
    producers: int = 2
    readers: int = 1
    session_readers: int = 0
    """Readers with fetch sessions, beside the others."""
    session_timeout_ms: int = 3000
    survives_power_cuts: bool = False
    workload: str = "numbers"
    latency_s: float = 0.0005
    thread_delay_s: float = 0.002
    pause_s: float | None = None
    """The longest time between two batches of a producer; None if each draws its own."""
    patience_s: float = REQUEST_S
    """How long clients of transactions wait for an answer."""
    first_epoch: int = 0
    """The epoch of the first producer of each transactional id."""

    def __str__(self) -> str:
        kinds = ", ".join(sorted({fault.kind for fault in self.plan})) or "none"
        return (
            f"{self.workload}; {self.size} brokers, {self.partitions} partitions, {self.producers} producers; "
            f"{len(self.plan)} faults: {kinds}"
        )


def draw_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed. Every fourth is a drill, the others have their own mixture of kinds of faults."""
    return _draw_drill(seed) if seed % 4 == 1 else _draw_storm(seed)


def _draw_drill(seed: int) -> Scenario:
    rng, drill = Random(f"drill/{seed}"), drill_of(seed)
    return Scenario(
        seed=seed,
        settings={
            **SETTINGS,
            **(UPKEEP_SETTINGS if drill.workload == "retention" else {}),
            **drills.SETTINGS,
            **drill.settings,
        },
        topic_configs={},
        plan=draw_faults(drill, rng),
        partitions=2 if drill.workload == "transactions" else 1,
        producers=2,
        session_timeout_ms=3000,
        workload=drill.workload,
        latency_s=rng.choice([0.002, 0.01, 0.02]),
        thread_delay_s=rng.choice([0.002, 0.02]),
        pause_s=rng.choice([0.05, 0.1]),
        patience_s=0.5,
        first_epoch=drill.last_epoch and drill.last_epoch - rng.randrange(4),
    )


def _draw_storm(seed: int) -> Scenario:
    rng = Random(f"scenario/{seed}")
    flushes = rng.random() < 0.4
    settings = {
        **SETTINGS,
        "replica.lag.time.max.ms": rng.choice(["2000", "10000"]),
        "replica.fetch.wait.max.ms": "500",
        "log.segment.bytes": rng.choice(["1000", "5000", "1000000"]),
        "log.flush.offset.checkpoint.interval.ms": rng.choice(["500", "5000"]),
        "auto.leader.rebalance.enable": rng.choice(["true", "false"]),
        "leader.imbalance.check.interval.seconds": "5",
    }
    if flushes:
        settings["log.flush.interval.messages"] = "1"  # for committed offsets and transactions, too
    workload = _workload_of(seed)
    if workload in UPKEEP or "compacted" in workload or "retention" in workload:
        settings |= UPKEEP_SETTINGS
    if seed >= LATER:
        settings |= LATER_SETTINGS
    kinds = sorted(rng.sample(sorted(KINDS), rng.randint(2, 6)))
    if rng.random() < 0.5:
        kinds.append("kill client")
    scenario = Scenario(
        seed=seed,
        settings=settings,
        topic_configs={"flush.messages": "1"} if flushes else {},
        plan=draw_plan(rng, kinds, rng.randint(4, 20), STORM_S),
        size=rng.choice([3, 3, 3, 4]),
        partitions=rng.choice([1, 2, 3]),
        producers=rng.choice([1, 2, 3]),
        session_readers=1 if seed >= LATER else 0,
        session_timeout_ms=rng.choice([1500, 1500, 3000, 6000]),
        survives_power_cuts=flushes,
        workload=workload,
        latency_s=rng.choice([0.0005, 0.005, 0.02, 0.05]),  # a slow network makes the windows of races wide
        thread_delay_s=rng.choice([0.002, 0.02, 0.1]),
    )
    return replace(scenario, size=REASSIGNMENT_SIZE) if workload.startswith("reassignment") else scenario


def _workload_of(seed: int) -> str:
    rng, (divisor, remainder, name) = Random(f"workload/{seed}"), LATER_RARE
    if seed >= LATER and seed % divisor == remainder:
        return name
    if seed >= LATER and rng.random() < LATER_SHARE:
        return rng.choice(LATER_WORKLOADS)
    for divisor, remainder, name in RARE:
        if seed % divisor == remainder:
            return name
    workload = WORKLOADS[seed % len(WORKLOADS)]
    return workload if workload != "upkeep" else UPKEEP[seed // len(WORKLOADS) % len(UPKEEP)]
