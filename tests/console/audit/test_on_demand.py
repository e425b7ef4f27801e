"""Work that is done while somebody wants to see what comes of it."""

from __future__ import annotations

import asyncio
import threading
import time

from skylog.console.on_demand import OnDemand
from skylog.errors import SkylogError
from skylog.testing import wait_until


def test_nothing_is_done_before_somebody_asks_and_the_first_to_ask_waits_for_it() -> None:
    rounds: list[int] = []
    work = OnDemand("test", lambda: rounds.append(1), 60)
    assert rounds == []
    asyncio.run(work.ask(20))
    assert rounds == [1]
    asyncio.run(work.ask(20))
    assert rounds == [1]  # the interval is not over, and there is something to show
    work.close()


def test_it_goes_on_while_it_is_wanted_and_rests_when_nobody_asks_any_more() -> None:
    rounds: list[int] = []
    rested = threading.Event()
    work = OnDemand("test", lambda: rounds.append(1), 0.01, rested.set, wanted_s=0.3)
    asyncio.run(work.ask(20))
    wait_until(lambda: len(rounds) >= 3, "more rounds")
    assert rested.wait(20)
    wait_until(lambda: "test" not in [thread.name for thread in threading.enumerate()], "the end of the thread")
    before = len(rounds)
    asyncio.run(work.ask(20))
    assert len(rounds) > before
    work.close()


def test_who_asks_does_not_wait_longer_than_told() -> None:
    ended = threading.Event()

    def wait() -> None:
        ended.wait(20)

    work = OnDemand("test", wait, 60)
    began = time.monotonic()
    asyncio.run(work.ask(0.05))
    assert time.monotonic() - began < 10
    ended.set()
    work.close()


def test_a_problem_is_told_until_a_round_goes_well() -> None:
    failures: list[Exception] = [SkylogError("no broker"), ValueError("a mistake")]
    told: list[str | None] = []

    def fail_twice() -> None:
        told.append(work.problem)
        if failures:
            raise failures.pop(0)

    work = OnDemand("test", fail_twice, 0.01)
    asyncio.run(work.ask(20))
    wait_until(lambda: len(told) >= 4, "more rounds")
    work.close()
    assert told[:4] == [None, "no broker", "reading failed; the console's log says why", None]


def test_a_long_round_that_failed_is_tried_again_soon_and_one_that_went_well_is_not() -> None:
    began: list[float] = []

    def fail_once() -> None:
        began.append(time.monotonic())
        threading.Event().wait(0.5)
        if len(began) == 1:
            raise SkylogError("no broker")

    work = OnDemand("test", fail_once, 0.01)
    asyncio.run(work.ask(20))
    wait_until(lambda: len(began) >= 3, "two more rounds")
    work.close()
    assert began[1] - began[0] < 4, "without nine times what it took"
    assert began[2] - began[1] >= 4.9
