"""Pauses of the event loop, as it measures them itself."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from skylog.broker.metrics import pauses
from skylog.broker.metrics.pauses import LONG_PAUSE_S, Pauses
from tests.broker.process import BrokerThread, until

from .reading import collected, value

LONGEST = "skylog_event_loop_longest_pause_seconds"
LAST_MINUTE = "skylog_event_loop_longest_pause_last_minute_seconds"


def test_the_longest_pause_of_the_last_minute_is_forgotten_after_it() -> None:
    measured = Pauses()
    for second in range(300):
        measured.add(5.0 if second == 100 else 0.01, 1000.0 + second)
        if 100 <= second <= 150:
            assert measured.longest_of_last_minute_s(1000.0 + second) == 5.0
    assert measured.longest_of_last_minute_s(1300.0) == 0.01
    assert measured.longest_of_last_minute_s(2000.0) == 0.0
    assert (measured.longest_s, measured.long_pauses) == (5.0, 1)


def test_a_loop_that_is_held_measures_and_logs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pauses, "START_S", 0.0)
    monkeypatch.setattr(pauses.limited_logger, "_quiet_until", {})
    with caplog.at_level(logging.WARNING), BrokerThread(tmp_path / "data") as thread:
        until(lambda: thread.look(lambda broker: broker.pause_probe.pauses.longest_s) > 0, "the probe to begin")
        for _ in range(3):
            thread.look(lambda _: time.sleep(0.5))
            time.sleep(0.1)
        metrics = collected(thread)
    assert value(metrics, LONGEST) > 0.4
    assert value(metrics, LAST_MINUTE) == value(metrics, LONGEST)
    assert value(metrics, "skylog_event_loop_long_pauses_total") >= 3
    assert sum("was blocked" in message for message in caplog.messages) == 1
    assert LONG_PAUSE_S == 0.1
