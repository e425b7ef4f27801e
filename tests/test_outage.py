"""An outage is an alarm only if it lasts."""

from __future__ import annotations

from skylog.outage import Outage
from skylog.testing import ManualClock


def test_an_outage_is_an_alarm_only_after_a_while() -> None:
    clock = ManualClock()
    outage = Outage(clock, 30.0)
    assert outage.is_over
    assert not outage.failed()
    clock.advance_ms(29_999)
    assert not outage.failed()
    assert not outage.is_over
    clock.advance_ms(1)
    assert outage.failed()


def test_an_outage_that_ended_is_forgotten() -> None:
    clock = ManualClock()
    outage = Outage(clock, 30.0)
    outage.failed()
    outage.ended()
    assert outage.is_over
    clock.advance_ms(60_000)
    assert not outage.failed()


def test_without_patience_every_outage_is_an_alarm() -> None:
    assert Outage(ManualClock(), 0.0).failed()
