"""The lives of a partition: brokers crash, lose data, stop, lag and move while controllers act on outdated views.

No committed record is lost by a clean election. And because tests that find nothing prove nothing: each rule is broken
once, on purpose, and that must be found.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.proof import proof
from tests.seeds import seed

from .partition_world import (
    BROKERS,
    CONTROLLERS,
    LEADERS,
    MAX_AMOUNT,
    NODES,
    OPERATORS,
    REPLICATION,
    Action,
    PartitionWorld,
    Step,
    live,
    parse_life,
    random_life,
    vary,
)
from .wrong_decisions import MISTAKES, Mistake

NUMBERS = st.sampled_from(NODES)
AMOUNTS = st.integers(0, MAX_AMOUNT)
STEPS = 80


class PartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = PartitionWorld()

    @initialize(min_in_sync=st.sampled_from((2, 1, 3)), is_careful=st.booleans())
    def create(self, min_in_sync: int, is_careful: bool) -> None:
        self.world = PartitionWorld(min_in_sync=min_in_sync, is_careful=is_careful)

    @rule(action=st.sampled_from(list(REPLICATION)), number=NUMBERS, amount=AMOUNTS)
    def replicas_write_and_fetch(self, action: Action, number: int, amount: int) -> None:
        action(self.world, number, amount)

    @rule(action=st.sampled_from(list(LEADERS)), number=NUMBERS, amount=AMOUNTS)
    def a_leader_changes_the_in_sync_set(self, action: Action, number: int, amount: int) -> None:
        action(self.world, number, amount)

    @rule(action=st.sampled_from(list(BROKERS)), number=NUMBERS, amount=AMOUNTS)
    def a_broker_starts_or_ends(self, action: Action, number: int, amount: int) -> None:
        action(self.world, number, amount)

    @rule(action=st.sampled_from(list(CONTROLLERS)), number=NUMBERS, amount=AMOUNTS)
    def a_controller_acts(self, action: Action, number: int, amount: int) -> None:
        action(self.world, number, amount)

    @rule(action=st.sampled_from(list(OPERATORS)), number=NUMBERS, amount=AMOUNTS)
    def an_operator_acts(self, action: Action, number: int, amount: int) -> None:
        action(self.world, number, amount)

    @invariant()
    def the_state_is_sound_and_nothing_committed_is_lost(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.heal()


TestPartitionMachine = PartitionMachine.TestCase
TestPartitionMachine.settings = settings(max_examples=proof(5_000, 60), stateful_step_count=60, deadline=None)


def test_random_lives_lose_nothing() -> None:
    start = seed()
    for number in range(proof(100_000, 500)):
        rng = Random(f"{start}/{number}")
        world = PartitionWorld(min_in_sync=rng.choice((1, 2, 2, 2, 3)), is_careful=rng.random() < 0.8)
        live(world, random_life(rng, STEPS))


def test_variations_of_dangerous_lives_lose_nothing() -> None:
    start = seed()
    for number in range(proof(200_000, 1_000)):
        rng = Random(f"{start}/{number}")
        live(PartitionWorld(), vary(parse_life(rng.choice(MISTAKES).life), rng))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_life_in_which_a_wrong_decision_does_harm(mistake: Mistake) -> None:
    life = parse_life(mistake.life)
    live(PartitionWorld(), life)
    with pytest.raises(AssertionError):
        live(PartitionWorld(mistake.decisions), life)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_variations_find_a_wrong_decision(mistake: Mistake) -> None:
    assert any(_is_found(mistake, vary(parse_life(mistake.life), Random(number))) for number in range(200))


@pytest.mark.parametrize(
    "mistake", [each for each in MISTAKES if each.is_found_by_chance], ids=lambda mistake: mistake.name
)
def test_random_lives_find_a_wrong_decision(mistake: Mistake) -> None:
    assert any(_is_found(mistake, random_life(Random(number), STEPS)) for number in range(500))


def _is_found(mistake: Mistake, life: list[Step]) -> bool:
    try:
        live(PartitionWorld(mistake.decisions), life)
    except AssertionError:
        return True
    return False
