"""The short form of `make chaos`, and its report."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from skylog.cluster.image import NO_LEADER
from skylog.cluster.metadata import CONTROLLER
from skylog.java import RequirementError, find_java
from skylog.testing import BrokerCluster
from tests.conftest import HAS_SPARK
from tests.proof import in_proof
from tests.seeds import seed

from ..cluster.nemesis import killed
from .faults import Storm
from .report import Outcome, page, picture
from .run import run, run_here, small_arena
from .timeline import Sample, Span, Timeline, longest_pause, rates


@pytest.mark.timeout(600)
def test_a_few_seconds_of_chaos_violate_nothing(tmp_path: Path) -> None:
    with small_arena() as arena:
        outcome = run(arena, 5, seed(), tmp_path, others=False)
    assert outcome.violations == []
    assert outcome.timeline.spans
    assert "nothing violated" in page(outcome)


@in_proof
@pytest.mark.timeout(3600)
def test_ten_minutes_of_chaos_violate_nothing(tmp_path: Path) -> None:
    try:
        find_java("ZooKeeper")
    except RequirementError as error:
        pytest.skip(str(error))
    if not HAS_SPARK:
        pytest.skip("pip install -e '.[spark]'")
    outcome = run_here(600, seed())
    (tmp_path / "chaos.html").write_text(page(outcome))
    assert outcome.violations == []


class Leaderless:
    """A cluster whose partition has no leader until a fault ends."""

    store = SimpleNamespace(entries=lambda _: {CONTROLLER: None})

    def leader_of(self, _: str) -> int:
        return NO_LEADER

    def wait_for_leader(self, topic: str) -> int:
        raise AssertionError(f"waited for a leader of {topic}, while only the storm can end the fault")


def test_a_storm_does_not_wait_for_a_leader_that_its_own_fault_keeps_away() -> None:
    """The last replica in sync was killed. The storm waited for another leader, and did not start it again."""
    cluster = cast(BrokerCluster, Leaderless())
    storm = Storm(cluster, "t", {"killed": killed}, random.Random(1), Timeline(), lambda: 0.0)
    storm._under_way["broker 1"] = nullcontext(), Span("killed", "broker 1", 0.0), 60.0
    for _ in range(10):
        storm._begin()
    assert list(storm._under_way) == ["broker 1"]


SAMPLES = [Sample(0.0, 0, 0), Sample(1.0, 10, 5), Sample(2.0, 10, 9), Sample(4.0, 10, 10), Sample(5.0, 30, 20)]


def test_rates_are_between_samples() -> None:
    assert rates(SAMPLES[:3]) == [(1.0, 10.0, 5.0), (2.0, 0.0, 4.0)]


def test_the_longest_pause_is_the_longest_time_without_an_acknowledgement() -> None:
    assert longest_pause(SAMPLES) == 3.0
    assert longest_pause(SAMPLES, until_s=2.0) == 1.0
    assert longest_pause([]) == 0.0


def test_the_picture_has_a_row_for_each_kind_of_fault() -> None:
    killed = [Span("killed", "broker 1", 1.0, 2.0), Span("killed", "broker 2", 3.0, 4.0)]
    drawn = picture(Timeline(SAMPLES, [*killed, Span("paused", "broker 3", 4.5)]))
    assert drawn.count("<rect") == 3
    assert drawn.count(">killed</text>") == drawn.count(">paused</text>") == 1


def test_the_page_shows_violations_and_what_was_missing() -> None:
    shown = page(Outcome(7, Timeline(SAMPLES, []), ["lost write: <x>"], ["a client"], ["netem"]))
    assert "1 violations" in shown
    assert "lost write: &lt;x&gt;" in shown
    assert "not part of this run: netem" in shown
