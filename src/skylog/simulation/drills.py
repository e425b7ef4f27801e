"""Drills: short runs whose faults come in the order and at the distance in which others' bugs have shown.

A storm hits a window of some milliseconds once in many thousand seeds. A drill aims at it: several faults form one
sequence, and the seed draws its times. `SEQUENCES` has them, `draw_faults` the plan of a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from skylog.simulation import sequences, transaction_sequences
from skylog.simulation.faults import Fault, Heal
from skylog.simulation.machine import Machine
from skylog.simulation.world import World

STORM_S: Final = 7.0


class Drill(NamedTuple):
    """A workload and the sequence that hits it, with the kinds of victims."""

    workload: str
    sequence: str
    victim: str
    settings: Mapping[str, str] = {}
    every_s: tuple[float, float] = (1.5, 3.5)
    """The time from one sequence to the next."""
    kills: int = 0
    """How many clients are killed with each sequence, at most."""
    last_epoch: int = 0
    """The highest epoch that producers begin with."""


DRILLS: Final = (
    Drill("numbers", "see-saw", "leader"),
    Drill("numbers", "lost while it joins", "follower"),
    Drill("transactions", "late requests", "any", every_s=(0.6, 1.2), kills=1),
    Drill("numbers", "lagging watermark", "follower"),
    Drill("retention", "left behind", "follower"),
    Drill("numbers", "late fetch", "follower"),
    Drill(
        "transactions",
        "late markers",
        "any",
        {"producer.id.expiration.ms": "1200", "log.retention.check.interval.ms": "10"},
        every_s=(4.5, 6.0),
    ),
    Drill(
        "transactions",
        "lonely coordinator",
        "any",
        {
            "transactional.id.expiration.ms": "1500",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "400",
        },
        kills=3,
        last_epoch=32_766,
    ),
    Drill("numbers", "stalled answer", "leader"),
)
SETTINGS: Final = {
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "500",
    "log.segment.bytes": "1000000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "auto.leader.rebalance.enable": "false",
}
SEQUENCES: Final[dict[str, Callable[[World, Machine, Random], Heal]]] = {
    "see-saw": sequences.see_saw,
    "lost while it joins": sequences.lost_while_it_joins,
    "lagging watermark": sequences.lagging_watermark,
    "late fetch": sequences.late_fetch,
    "left behind": sequences.left_behind,
    "stalled answer": sequences.stalled_answer,
    "late requests": transaction_sequences.late_requests,
    "late markers": transaction_sequences.late_markers,
    "lonely coordinator": transaction_sequences.lonely_coordinator,
}
LOSING: Final = frozenset({"lost while it joins", "late fetch"})
"""Sequences in which a machine loses what it has not synced."""


def drill_of(seed: int) -> Drill:
    return DRILLS[seed // 4 % len(DRILLS)]


def draw_faults(drill: Drill, rng: Random) -> list[Fault]:
    """Draw when the sequence begins, how long its last fault lasts, and which clients are killed meanwhile."""
    plan: list[Fault] = []
    at_s = rng.uniform(0.3, 1.5)
    while at_s < STORM_S:
        plan.append(Fault(len(plan), at_s, drill.sequence, drill.victim, rng.choice([0.3, 0.9, 1.8, 2.7])))
        for _ in range(rng.randint(0, drill.kills) if drill.kills else 0):
            plan.append(Fault(len(plan), at_s + rng.uniform(0.1, 2.0), "kill client", "any", 0.0))
        at_s += rng.uniform(*drill.every_s)
    return [replace(fault, number=number) for number, fault in enumerate(sorted(plan, key=lambda each: each.at_s))]
