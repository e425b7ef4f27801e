"""Losses, counted and logged."""

from __future__ import annotations

import pytest

from skylog.events import DropReason
from skylog.events.drops import WARNING_INTERVAL_S, Drops
from skylog.testing import ManualClock


def test_the_first_loss_is_logged_at_once_and_the_next_ones_are_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    drops = Drops("blog_log", clock)
    for _ in range(7):
        drops.add(DropReason.BUFFER_FULL)
    assert [record.getMessage() for record in caplog.records] == ["dropped events for topic blog_log: 1 buffer_full"]
    clock.advance_ms(int(WARNING_INTERVAL_S * 1000))
    drops.add(DropReason.REFUSED, 2, "too large")
    assert caplog.records[-1].getMessage() == (
        "dropped events for topic blog_log: 6 buffer_full, 2 refused (too large)"
    )
    drops.add(DropReason.UNDELIVERED)
    drops.warn()
    assert caplog.records[-1].getMessage() == "dropped events for topic blog_log: 1 undelivered"
    drops.warn()
    assert len(caplog.records) == 3
    assert drops.counts() == {"unencodable": 0, "buffer_full": 7, "refused": 2, "undelivered": 1}
