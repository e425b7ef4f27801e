"""How often the cluster is queried, and when an answer is no longer current."""

from __future__ import annotations

from skylog.console.monitoring.history import INTERVAL_S
from skylog.console.monitoring.pacing import Pacing
from skylog.testing import ManualClock


def test_queries_take_at_most_a_tenth_of_the_time() -> None:
    pacing = Pacing(ManualClock())
    assert pacing.pause_s(0.1, True) == INTERVAL_S - 0.1
    assert [pacing.pause_s(4.0, True) for _ in range(3)][-1] == 36.0
    assert pacing.pause_s(4.0, False) == 1.0


def test_a_query_that_waited_for_a_stalled_broker_does_not_delay_the_next_ones() -> None:
    pacing = Pacing(ManualClock())
    pacing.pause_s(0.1, True)
    assert pacing.pause_s(12.0, True) == 1.0
    assert pacing.pause_s(0.1, True) == INTERVAL_S - 0.1


def test_an_answer_is_in_doubt_when_the_next_one_is_overdue() -> None:
    clock = ManualClock()
    pacing = Pacing(clock)
    pacing.pause_s(0.1, True)
    pacing.pause_s(12.0, True)
    clock.advance_ms(15_000)
    assert pacing.doubt is None
    clock.advance_ms(1000)
    assert pacing.doubt == "the cluster has not answered for 16 s"
    pacing.pause_s(2.0, True)
    clock.advance_ms(16_000)
    assert pacing.doubt is None  # of a cluster with slow queries: the next one is due after 18 s
    clock.advance_ms(25_000)
    assert pacing.doubt is not None
