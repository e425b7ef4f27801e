"""The Spark session of jobs: local, unless you set another master."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from skylog.java import find_java
from skylog.spark.versions import check_pyspark
from skylog.spark.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",  # dates and hours must not depend on where the job runs
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}


def start_session(name: str, master: str = DEFAULT_MASTER, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of this process. `settings` are Spark options, and override the defaults here.

    With another master than `local`, checks that executors can run the data source. Raises WorkerError if they cannot,
    UnsupportedSparkError if PySpark is too old, RequirementError if there is no Java.
    """
    from pyspark.sql import SparkSession

    check_pyspark()
    if "PYSPARK_GATEWAY_PORT" not in os.environ and not master.startswith("sc://"):  # the JVM is not there already
        find_java("Spark")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers find the format in this environment
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        os.environ["LC_ALL"] = "C.UTF-8"  # otherwise Java replaces non-ASCII characters of paths with '?'
    local = _LOCAL_SETTINGS if master.startswith("local") else {}
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register_format(session)
    if master != "local" and not master.startswith("local["):
        check_workers(session)
    return session


def register_format(spark: SparkSession) -> None:
    """Register the format with the session, whether or not Spark has discovered it.

    Spark discovers formats once per session, with a Python process that must connect within ten seconds. If a busy
    machine delays it, or `PYSPARK_PYTHON` has no skylog, Spark logs a warning, continues without the formats and never
    retries: the session reports DATA_SOURCE_NOT_FOUND until its end. A registered format does not depend on that.
    """
    from pyspark.errors import AnalysisException

    from skylog.spark.source import SkylogSource

    check_pyspark()
    try:
        spark.dataSource.register(SkylogSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def make_active(spark: SparkSession) -> None:
    """Make `spark` the active session of this thread, in which Spark looks up the format of a write.

    A new thread has no active session. The main thread silently loses its own when py4j reconnects to the JVM: reads
    still work, and writes fail with DATA_SOURCE_NOT_FOUND.
    """
    spark.createDataFrame([], "nothing INT")  # the public call that sets the active session
