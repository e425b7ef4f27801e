"""Starts, monitors and stops the process that runs Spark and all jobs (see `driver`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any, Final

from skylog.client.kafka_settings import CONFIG_VARIABLE
from skylog.demo.layout import Layout
from skylog.errors import SkylogError

_LAST_LINES: Final = 5


class PipelineError(SkylogError):
    """The driver exited or a job failed. The message has the cause, or the path of the log."""


class Pipeline:
    """Spark's driver as a child process.

    It runs in a separate session, so Ctrl-C reaches only the demo, which then stops it cleanly. It ends when its
    standard input is closed, so it never outlives this process. Spark's JVM and Python workers end with the driver.
    """

    def __init__(self, bootstrap: str, layout: Layout, config_file: Path | None = None) -> None:
        """`config_file` has the settings with which the jobs connect, if they need any."""
        self.is_ready = False
        self._failure = ""
        self._is_stopping = False
        self.log_path = layout.spark_log
        command = [sys.executable, "-P", "-m", "skylog.demo.driver", bootstrap, str(layout.root)]
        with open(self.log_path, "a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, CONFIG_VARIABLE: str(config_file or "")},
            )
        self._listener = Thread(target=self._listen, name="pipeline", daemon=True)
        self._listener.start()

    def check(self) -> None:
        """Raise PipelineError if Spark or a job has failed."""
        code = self._process.poll()
        if self._failure:
            raise PipelineError(self._failure)
        if code is not None and not self._is_stopping:
            raise PipelineError(f"Spark exited with code {code}; see {self.log_path}:\n{self._log_tail()}")

    def stop(self, timeout_s: float) -> None:
        """Finish the current batches and stop Spark. Raises PipelineError if that fails or takes too long."""
        self.check()
        self._is_stopping = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PipelineError(f"Spark did not stop within {timeout_s:.0f} s; see {self.log_path}") from None
        self._listener.join(timeout_s)
        self.check()
        if code:
            raise PipelineError(f"Spark exited with code {code}; see {self.log_path}:\n{self._log_tail()}")

    def kill(self) -> None:
        """Kill the driver and its JVM, which may outlive the driver."""
        self._is_stopping = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._on_message(json.loads(line))

    def _on_message(self, message: dict[str, Any]) -> None:
        """Handle a message of `driver.StatusPipe`."""
        match message:
            case {"ready": True}:
                self.is_ready = True
            case {"failed": str(error)}:
                self._failure = error

    def _log_tail(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])
