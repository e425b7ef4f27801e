"""A part of a cluster that dies is started again, unless the cluster is being stopped."""

from __future__ import annotations

import signal
import threading

from skylog.development.supervisor import Supervisor
from skylog.errors import SkylogError
from skylog.testing import wait_until


class Part:
    """A process that ends when a test says so. `start` fails as often as `failures` says."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.starts = 0
        self.exit_code: int | None = None
        self.may_start = threading.Event()
        self.may_start.set()
        self._has_ended = threading.Event()

    def start(self) -> None:
        self.starts += 1
        self.may_start.wait()
        if self.failures:
            self.failures -= 1
            raise SkylogError("no disk")
        self._has_ended.clear()

    def wait(self) -> None:
        self._has_ended.wait()

    def stop(self) -> None:
        self.end(0)

    def end(self, code: int) -> None:
        self.exit_code = code
        self._has_ended.set()

    @property
    def is_running(self) -> bool:
        return not self._has_ended.is_set()


def supervise(part: Part) -> tuple[Supervisor, list[str]]:
    events: list[str] = []
    supervisor = Supervisor("broker 2", part, 0.01, events.append)
    supervisor.begin()
    return supervisor, events


def test_a_part_that_was_killed_is_reported_and_started_again() -> None:
    part = Part()
    supervisor, events = supervise(part)
    part.end(-signal.SIGKILL)
    wait_until(lambda: len(events) == 2, "the part to be back")
    assert events == ["broker 2 was killed by SIGKILL; starting it again in 0.01 s", "broker 2 is back"]
    part.end(3)
    wait_until(lambda: len(events) == 4, "the part to be back")
    assert events[2].startswith("broker 2 ended by itself with code 3")
    supervisor.stop()
    assert part.starts == 2


def test_a_part_that_does_not_start_is_tried_again_after_longer_and_longer_pauses() -> None:
    part = Part(failures=2)
    supervisor, events = supervise(part)
    part.end(1)
    wait_until(lambda: events[-1:] == ["broker 2 is back"], "the part to be back")
    assert events[1:3] == [f"broker 2 did not start: no disk; trying again in {pause} s" for pause in ("0.02", "0.04")]
    supervisor.stop()
    assert part.starts == 3


def test_a_part_that_is_stopped_stays_stopped() -> None:
    part = Part()
    supervisor, events = supervise(part)
    supervisor.stop()
    assert (part.starts, part.is_running, events) == (0, False, [])


def test_a_part_that_is_being_started_is_stopped_too() -> None:
    part = Part()
    supervisor, _ = supervise(part)
    part.may_start.clear()
    part.end(1)
    wait_until(lambda: part.starts == 1, "the part to be started")
    stopping = threading.Thread(target=supervisor.stop)
    stopping.start()
    part.may_start.set()
    stopping.join(20)
    assert not stopping.is_alive()
    assert not part.is_running
