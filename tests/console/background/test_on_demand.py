"""Background tasks that run only while their results are requested."""

from __future__ import annotations

import asyncio
import threading
import time

from skylog.console.background.on_demand import OnDemandTask
from skylog.errors import SkylogError
from skylog.testing import wait_until


def test_the_task_starts_with_the_first_request_which_waits_for_the_first_run() -> None:
    runs: list[int] = []
    work = OnDemandTask("test", lambda: runs.append(1), 60)
    assert runs == []
    asyncio.run(work.request(20))
    assert runs == [1]
    asyncio.run(work.request(20))
    assert runs == [1]  # the interval is not over, and there is something to show
    work.close()


def test_the_task_ends_when_there_are_no_more_requests_and_starts_again() -> None:
    runs: list[int] = []
    idle = threading.Event()
    work = OnDemandTask("test", lambda: runs.append(1), 0.01, idle.set, idle_after_s=0.3)
    asyncio.run(work.request(20))
    wait_until(lambda: len(runs) >= 3, "more runs")
    assert idle.wait(20)
    wait_until(lambda: "test" not in [thread.name for thread in threading.enumerate()], "the end of the thread")
    before = len(runs)
    asyncio.run(work.request(20))
    assert len(runs) > before
    work.close()


def test_a_request_does_not_wait_longer_than_its_timeout() -> None:
    ended = threading.Event()

    def wait() -> None:
        ended.wait(20)

    work = OnDemandTask("test", wait, 60)
    began = time.monotonic()
    asyncio.run(work.request(0.05))
    assert time.monotonic() - began < 10
    ended.set()
    work.close()


def test_a_problem_lasts_until_a_run_succeeds() -> None:
    failures: list[Exception] = [SkylogError("no broker"), ValueError("a mistake")]
    problems: list[str | None] = []

    def fail_twice() -> None:
        problems.append(work.problem)
        if failures:
            raise failures.pop(0)

    work = OnDemandTask("test", fail_twice, 0.01)
    asyncio.run(work.request(20))
    wait_until(lambda: len(problems) >= 4, "more runs")
    work.close()
    assert problems[:4] == [None, "no broker", "reading failed; see the console's log", None]


def test_a_long_run_that_failed_is_retried_soon_and_one_that_succeeded_is_not() -> None:
    began: list[float] = []

    def fail_once() -> None:
        began.append(time.monotonic())
        threading.Event().wait(0.5)
        if len(began) == 1:
            raise SkylogError("no broker")

    work = OnDemandTask("test", fail_once, 0.01)
    asyncio.run(work.request(20))
    wait_until(lambda: len(began) >= 3, "two more runs")
    work.close()
    assert began[1] - began[0] < 4, "without nine times what it took"
    assert began[2] - began[1] >= 4.9
