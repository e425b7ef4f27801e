"""Replicas agree: through elections, outdated views and restarts no committed record is lost and no log diverges.

Each bug that others shipped in this is a named life of a partition, in which undoing the mend does harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from skylog.errors import SkylogError
from skylog.model import NO_EPOCH
from skylog.replication import divergence
from skylog.replication.divergence import EpochEnd
from tests.proof import proof
from tests.seeds import seed

from .replica_world import ACTIONS, NODES, Mends, Replica, ReplicaWorld, live_through, random_life

STEPS = 60


# -- what others had before


def never_diverging(*_: object) -> None:
    return None


def only_the_exact_epoch(leader: Replica, offset: int, epoch: int) -> EpochEnd | None:
    """A leader that does not have the epoch answers that it knows nothing, and not with the one before."""
    found = divergence(leader.epochs, leader.end_offset, leader.epoch, offset, epoch)
    return EpochEnd(NO_EPOCH, -1) if found is not None and found.epoch != epoch else found


def without_an_epoch_that_has_written_nothing(leader: Replica, offset: int, epoch: int) -> EpochEnd | None:
    return divergence(leader.epochs, leader.end_offset, NO_EPOCH, offset, epoch)


def to_the_high_watermark_if_unknown(follower: Replica, leader: EpochEnd) -> int:
    return follower.high_watermark if leader.end_offset < 0 else min(leader.end_offset, follower.end_offset)


def to_where_the_leader_says(follower: Replica, leader: EpochEnd) -> int:
    """Without a look at the own history: the leader's epoch may have ended earlier here."""
    return min(leader.end_offset, follower.end_offset)


@dataclass(frozen=True)
class Bug:
    """Mends that are undone, and a life in which that does harm."""

    name: str
    mends: Mends
    life: str
    is_found_by_chance: bool = True


BUGS = (
    Bug(
        "KIP-101: a follower truncates to its high watermark, leads, and an acknowledged record is gone",
        Mends(truncates_to_the_watermark_in_a_new_epoch=True),
        "append 1; fetch 2; fetch 3; fetch_in_vain 2; fetch_in_vain 3; elect 3; learn 3; learn 2; elect 2",
    ),
    Bug(
        "KIP-101: without truncation logs diverge",
        Mends(divergence=never_diverging),
        "append 1; elect 2; learn 2; append 2; learn 1; fetch 1",
    ),
    Bug(
        "KAFKA-6361: two quick elections, and the leader does not have the epoch",
        Mends(divergence=only_the_exact_epoch, truncation_offset=to_the_high_watermark_if_unknown),
        "append 1; fetch 2; fetch 3; fetch_in_vain 2; fetch_in_vain 3; elect 2; learn 2; append 2; elect 3; learn 3; "
        "learn 2; fetch 2; elect 2",
        is_found_by_chance=False,
    ),
    Bug(
        "KIP-279: the end of an epoch in the own log counts, too",
        Mends(truncation_offset=to_where_the_leader_says),
        "append 1; elect 3; learn 3; append 3",
    ),
    Bug(
        "KAFKA-7128: a follower joins at the watermark of a leader that does not know its own yet",
        Mends(joining_offset=lambda _, watermark, __: watermark),
        "shrink 3; append 1; fetch 2; fetch_in_vain 2; elect 2; learn 2; learn 3; fetch_in_vain 3; join 3; elect 3",
        is_found_by_chance=False,
    ),
    Bug(
        "KAFKA-7164: a follower that missed an epoch finds the same leader and does not truncate",
        Mends(looks_for_a_divergence_in_each_fetch=False),
        "append 1; append 1; fetch 3; fetch 3; elect 2; learn 2; append 2; learn 1; fetch 1; fetch 1; elect 1; "
        "learn 1; learn 3; fetch 3",
    ),
    Bug(
        "KAFKA-7415: a leader that has written nothing does not know its epoch",
        Mends(divergence=without_an_epoch_that_has_written_nothing),
        "append 1; fetch 2; elect 2; learn 2; append 2; elect 3; learn 3; learn 2; fetch 2",
    ),
    Bug(
        "KAFKA-7897, KAFKA-10706: an epoch without records stays in the history",
        Mends(truncates_the_history_at_the_end=False),
        "append 1; elect 2; learn 2; fail_to_append 2",
    ),
    Bug(
        "KAFKA-14704: the watermark rises before the log is truncated",
        Mends(truncates_before_the_watermark=False),
        "append 1; elect 2; learn 2; append 2; learn 3; fetch 3; fetch 3; shrink 1; learn 1; fetch 1",
    ),
    Bug(
        "KAFKA-13141: the position of a follower that diverges is recorded",
        Mends(records_only_what_agrees=False),
        "append 1; elect 2; learn 2; append 2; learn 3; fetch 3; fetch 3; learn 1; fetch 1; elect 1",
    ),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_life_in_which_a_bug_that_others_shipped_does_harm(tmp_path: Path, bug: Bug) -> None:
    live_through(ReplicaWorld(tmp_path / "mended"), bug.life)
    with pytest.raises((AssertionError, SkylogError)):
        live_through(ReplicaWorld(tmp_path / "undone", bug.mends), bug.life)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.is_found_by_chance], ids=lambda bug: bug.name)
def test_random_lives_find_a_bug_that_others_shipped(tmp_path: Path, bug: Bug) -> None:
    for number in range(1000):
        try:
            live_through(ReplicaWorld(tmp_path / str(number), bug.mends), random_life(Random(number), STEPS))
        except (AssertionError, SkylogError):
            return
    pytest.fail("not found in 1000 lives")


def test_random_lives_lose_nothing(tmp_path: Path) -> None:
    start = seed()
    for number in range(proof(20_000, 100)):
        live_through(ReplicaWorld(tmp_path / str(number)), random_life(Random(f"{start}/{number}"), STEPS))


class ReplicaMachine(RuleBasedStateMachine):
    directory: Path
    _number = 0

    def __init__(self) -> None:
        super().__init__()
        ReplicaMachine._number += 1
        self.world = ReplicaWorld(self.directory / str(ReplicaMachine._number))

    @rule(name=st.sampled_from(list(ACTIONS)), node_id=st.sampled_from(NODES))
    def something_happens(self, name: str, node_id: int) -> None:
        ACTIONS[name](self.world, node_id)

    @rule(node_id=st.sampled_from(NODES))
    def a_follower_fetches(self, node_id: int) -> None:
        self.world.fetch(node_id)

    @invariant()
    def logs_match(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.heal()


def test_any_life_loses_nothing(tmp_path: Path) -> None:
    ReplicaMachine.directory = tmp_path
    effort = settings(max_examples=proof(2_000, 40), stateful_step_count=50, deadline=None)
    run_state_machine_as_test(ReplicaMachine, settings=effort)
