"""Signals and the time limit of the demo."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from skylog.demo.stop_condition import StopCondition


@pytest.fixture
def signals() -> Iterator[None]:
    """Restores the signal handlers after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_the_first_signal_stops_and_the_second_aborts() -> None:
    stop_condition = StopCondition(None)
    stop_condition.begin()
    assert not stop_condition.wait(0)
    os.kill(os.getpid(), signal.SIGINT)
    assert stop_condition.wait(10)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("signals")
def test_it_stops_after_the_given_seconds_and_not_before() -> None:
    began = time.monotonic()
    soon, later = StopCondition(0.05), StopCondition(600)
    soon.begin()
    later.begin()
    assert soon.wait(60)
    assert 0.05 <= time.monotonic() - began < 30
    assert not later.wait(0)
