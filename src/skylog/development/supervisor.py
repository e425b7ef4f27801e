"""Starts a part of a cluster again when it ends by itself, as a service manager would."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Final, Protocol

from skylog.errors import SkylogError

LONGEST_PAUSE_S: Final = 30.0
_JOIN_S: Final = 0.05

ReportEvent = Callable[[str], None]
"""Called with a line for people, on any thread."""


class SupervisedPart(Protocol):
    """A process that can be started again. `start` returns when it is ready, or raises SkylogError."""

    @property
    def exit_code(self) -> int | None: ...
    def start(self) -> object: ...
    def wait(self) -> None: ...
    def stop(self) -> None: ...


class Supervisor:
    """Watches a part from `begin`, which must be running by then, to `stop`, which stops it cleanly.

    The first attempt to start it again is made after `restart_after_s`. The pause doubles with every failure.
    """

    def __init__(self, name: str, part: SupervisedPart, restart_after_s: float, report: ReportEvent) -> None:
        self._name = name
        self._part = part
        self._restart_after_s = restart_after_s
        self._report = report
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"supervisor of {name}", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def abandon(self) -> None:
        """From now on, do not start the part again."""
        self._is_stopping.set()

    def stop(self) -> None:
        """Stop the part, also one that is just being started."""
        self.abandon()
        self._part.stop()
        while self._thread.is_alive():
            self._thread.join(_JOIN_S)
            self._part.stop()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self._part.wait()
            if not self._is_stopping.is_set():
                self._restart()

    def _restart(self) -> None:
        pause_s = self._restart_after_s
        self._report(f"{self._name} {_how(self._part.exit_code)}; starting it again in {pause_s:g} s")
        while not self._is_stopping.wait(pause_s):
            try:
                self._part.start()
            except SkylogError as error:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                if not self._is_stopping.is_set():
                    self._report(f"{self._name} did not start: {error}; trying again in {pause_s:g} s")
            else:
                self._report(f"{self._name} is back")
                return


def _how(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"ended by itself with code {exit_code}"
    return f"was killed by {signal.Signals(-exit_code).name}"
