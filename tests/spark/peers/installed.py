"""Packages that the tests' own environment cannot have, installed once into a cache.

Interpreters with another PySpark run skylog from this checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.spark.peers.jars import CACHE

ROOT = Path(__file__).parents[3]


class NotInstalledError(Exception):
    """A package that cannot be installed here, and why."""


class Interpreter:
    """A Python with PySpark `version`, such as 4.2, and all that skylog needs. Raises NotInstalledError."""

    def __init__(self, version: str) -> None:
        home = CACHE / f"pyspark-{version}-python-{sys.version_info[0]}.{sys.version_info[1]}"
        if not home.exists():
            _install(version, home)
        self.path = home / "bin" / "python"
        source = str(ROOT / "src")  # before the installed skylog, which may be an older one
        self.variables = {**os.environ, "PYSPARK_PYTHON": str(self.path), "PYTHONPATH": source}

    def run(self, script: Path, *arguments: object, directory: Path) -> str:
        """Run a script to its end, and return its output."""
        command = list(map(str, (self.path, script, *arguments)))
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=self.variables, cwd=directory)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


def packages(name: str, *, is_allowed: bool) -> Path:
    """Return a directory with a package and what it needs, for PYTHONPATH. Raises NotInstalledError.

    It is installed if it `is_allowed`, which takes a while, or else must be in the cache.
    """
    home = CACHE / f"packages-{name}"
    if not home.exists():
        if not is_allowed:
            raise NotInstalledError(f"{name} is not installed yet: run `make proof` once")
        with _work_dir() as found:
            _pip([sys.executable, "-m", "pip", "install", "-q", "--target", found, name])
            _keep(found, home)
    return home


def _install(version: str, home: Path) -> None:
    with _work_dir() as found:
        subprocess.run([sys.executable, "-m", "venv", found], check=True)
        _pip([found / "bin" / "python", "-m", "pip", "install", "-q", f"pyspark=={version}.*", f"{ROOT}[spark]"])
        _keep(found, home)


@contextmanager
def _work_dir() -> Iterator[Path]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        yield Path(directory, "installed")


def _pip(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotInstalledError(f"{command[-1]} cannot be installed here: {done.stderr[-500:].strip()}")


def _keep(found: Path, home: Path) -> None:
    if not home.exists():  # another process may have been faster
        found.rename(home)
