"""The Spark job of a run, as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from skylog.simulation.history import Value
from tests.conftest import HAS_SPARK

FINISH_S = 300


class NoSparkError(Exception):
    """Spark cannot be had here, and why."""


class SparkCopy:
    """Keeps a table of the topic until `finish`, which returns its values."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        if not HAS_SPARK:
            raise NoSparkError("Spark: pip install -e '.[spark]'")
        directory.mkdir()
        self._errors = directory / "stderr"
        script = Path(__file__).with_name("spark_copy.py")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(script), bootstrap, topic, str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def failures(self) -> int:
        return self._errors.read_text(errors="replace").count("failed: ")

    def finish(self) -> list[Value]:
        """Let it run once more. Raises AssertionError with the end of its log if that fails."""
        output, _ = self._process.communicate(timeout=FINISH_S)
        assert self._process.returncode == 0, self._errors.read_text(errors="replace")[-2000:]
        return [Value.decode(line.encode()) for line in output.splitlines()]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
