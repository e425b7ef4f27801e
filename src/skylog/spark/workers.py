"""Checks that the executors of a cluster can run the data source, before a job fails with an unrelated error.

Executors start their own Python, which must have skylog, in the driver's version. Without it, Spark reports
`ClassNotFoundException: skylog.DefaultSource` or a missing module. Files that a job shares with its executors must be
on a disk that they share. Without it, Spark reports missing files or `UNABLE_TO_INFER_SCHEMA`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from skylog import __version__
from skylog.errors import SkylogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROBES_PER_CORE: Final = 2


class WorkerError(SkylogError):
    """An executor cannot run the data source, or does not share a directory with the driver."""


class Probe(NamedTuple):
    """What a task found: host, interpreter, its version, the version of skylog, and whether it sees the marker."""

    host: str
    interpreter: str
    python: tuple[int, int]
    skylog: str | None
    reason: str
    sees_marker: bool


def check_workers(spark: SparkSession, directory: str | os.PathLike[str] | None = None) -> None:
    """Run a short job on all executors, and raise WorkerError with the fix if they lack something.

    Checks Python and skylog. With `directory`, also checks that executors see the driver's files in it.
    """
    with _marker(directory) as marker:
        try:
            probes = _run(spark, marker)
        except Exception as error:  # whatever the worker that did not start left behind: Java's or Python's error
            raise WorkerError(
                f"executors cannot start Python: {_first_line(error)}. They run the interpreter in PYSPARK_PYTHON "
                f"({os.environ.get('PYSPARK_PYTHON', 'python3, because it is not set')}), which must exist at the same "
                "path on every machine. See docs/spark-clusters.md"
            ) from error
    for probe in probes:
        _check(probe, directory)


def _check(probe: Probe, directory: str | os.PathLike[str] | None) -> None:
    where = f"the executor on {probe.host} (Python {'.'.join(map(str, probe.python))} at {probe.interpreter})"
    if probe.python != sys.version_info[:2]:
        raise WorkerError(
            f"{where} has another Python than the driver ({sys.version_info[0]}.{sys.version_info[1]} at "
            f"{sys.executable}): set PYSPARK_PYTHON to the same version on both"
        )
    if probe.skylog is None:
        raise WorkerError(
            f"{where} cannot import skylog ({probe.reason}): set PYSPARK_PYTHON to an interpreter with skylog[spark], "
            "or ship an environment with spark.archives. See docs/spark-clusters.md"
        )
    if probe.skylog != __version__:
        raise WorkerError(f"{where} has skylog {probe.skylog}, the driver {__version__}: install the same version")
    if not probe.sees_marker:
        raise WorkerError(
            f"{where} does not see the driver's files in {directory}: use a directory that is mounted on every "
            "machine, or an object store. See docs/spark-clusters.md"
        )


def _run(spark: SparkSession, marker: str | None) -> list[Probe]:
    """Run probes. The function is nested, so that it is sent by value: workers may not have this module."""

    def probe(_: Any) -> tuple[Any, ...]:
        import os
        import socket
        import sys

        version, reason = None, ""
        try:
            import pyspark_skylog  # noqa: F401  # with everything that the source imports
            import skylog

            version = skylog.__version__
        except ImportError as error:
            reason = str(error)
        sees_marker = marker is None or os.path.exists(marker)
        return socket.gethostname(), sys.executable, tuple(sys.version_info[:2]), version, reason, sees_marker

    context = spark.sparkContext
    count = max(context.defaultParallelism, 1) * _PROBES_PER_CORE
    return [Probe(*each) for each in context.parallelize(range(count), count).map(probe).collect()]


@contextmanager
def _marker(directory: str | os.PathLike[str] | None) -> Iterator[str | None]:
    if directory is None:
        yield None
        return
    Path(directory).mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=".skylog-check-", dir=Path(directory).absolute()) as file:
        yield file.name


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Cannot run program" in line or "No module named" in line]
    return (causes or lines or [type(error).__name__])[0]
