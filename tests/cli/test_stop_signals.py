"""The signals that stop commands."""

from __future__ import annotations

import os
import signal

import pytest

from skylog.cli.stop_signals import stopped_by_signals

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_stops_and_the_second_interrupts(number: signal.Signals) -> None:
    before, stops = [signal.getsignal(each) for each in NUMBERS], []
    with stopped_by_signals(lambda: stops.append(number)):
        os.kill(os.getpid(), number)
        assert stops == [number]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert stops == [number]
    assert [signal.getsignal(each) for each in NUMBERS] == before
