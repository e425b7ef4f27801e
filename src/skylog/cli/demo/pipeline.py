"""The pipeline of the demonstration, seen from outside: a process that runs Spark and all jobs (see `driver`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from threading import Thread
from typing import Any, Final

from skylog.cli.demo.places import Places
from skylog.errors import SkylogError

_LAST_LINES: Final = 5


class PipelineError(SkylogError):
    """The driver ended before it was told to; the message has its own words, or where they are."""


class Pipeline:
    """Spark's driver as a child, in a session of its own: Ctrl-C is for the demonstration, which ends it in order.

    It ends when its standard input does, so it does not outlive this process, whatever becomes of that. Spark's JVM and
    Python workers in turn end with the driver.
    """

    def __init__(self, bootstrap: str, places: Places) -> None:
        self.is_ready = False
        self._failure = ""
        self._is_told = False
        self.log_path = places.spark_log
        command = [sys.executable, "-P", "-m", "skylog.cli.demo.driver", bootstrap, str(places.root)]
        with open(self.log_path, "a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._listener = Thread(target=self._listen, name="pipeline", daemon=True)
        self._listener.start()

    def check(self) -> None:
        """Raise PipelineError if a job has failed, or Spark has."""
        code = self._process.poll()
        if self._failure:
            raise PipelineError(self._failure)
        if code is not None and not self._is_told:
            raise PipelineError(f"Spark ended with code {code}; see {self.log_path}:\n{self._last_words()}")

    def stop(self, patience_s: float) -> None:
        """Let the batches at hand be finished and Spark end. Raises PipelineError if it doesn't, or not well."""
        self.check()
        self._is_told = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PipelineError(f"Spark did not end in {patience_s:.0f} s; see {self.log_path}") from None
        self._listener.join(patience_s)
        self.check()
        if code:
            raise PipelineError(f"Spark ended with code {code}; see {self.log_path}:\n{self._last_words()}")

    def kill(self) -> None:
        """End it at once, with its JVM, which may still be there when the driver is not."""
        self._is_told = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        """What `driver.Voice` says."""
        match said:
            case {"ready": True}:
                self.is_ready = True
            case {"failed": str(message)}:
                self._failure = message

    def _last_words(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])
