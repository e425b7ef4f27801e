"""The Spark session that jobs run in: on this machine unless another master is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",  # days and hours are those of the events, wherever the job runs
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}


def start_session(name: str, master: str = DEFAULT_MASTER, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process; `settings` are Spark's own and go before ours."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers find the format in this environment
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        os.environ["LC_ALL"] = "C.UTF-8"  # Java would write '?' for letters of a path that are not ASCII
    local = _LOCAL_SETTINGS if master.startswith("local") else {}
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register_format(session)
    return session


def register_format(spark: SparkSession) -> None:
    """Make the format known to the session, whether Spark has found it or not.

    Spark looks for formats once for a session, with a Python process that must connect within ten seconds. Where a busy
    machine does not let it, the session goes on without them, and no later look is taken.
    """
    from pyspark.errors import AnalysisException

    from skylog.spark.source import SkylogSource

    try:
        spark.dataSource.register(SkylogSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def make_active(spark: SparkSession) -> None:
    """Make it the active session of this thread, where Spark looks for the format that is to be written.

    A thread has none at first, and the main thread loses its own when py4j has to connect to the JVM again, of which
    it says nothing: then reading goes on as before, and writing ends with DATA_SOURCE_NOT_FOUND.
    """
    spark.createDataFrame([], "nothing INT")  # the public call that does so
