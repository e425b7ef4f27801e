"""Lands topics in a process of its own: `python -m benchmarks.lander KIND BOOTSTRAP CORES`.

KIND is `skylog` for the job of the checkout in PYTHONPATH, or `delta` or `parquet` for Spark's JVM connector and that
format. Takes a topic and a warehouse per line, and answers with the seconds that it took.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

JOBS = ("skylog.pipeline.jobs.land", "skylog.spark.jobs.land")
"""The module of the job, in this checkout and in earlier ones."""
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(jars: list[Path], cores: str, settings: dict[str, str]) -> Any:
    """A session with the settings that the job's command has."""
    from skylog.spark.session import start_session

    given = {"spark.driver.memory": "2g", **settings}
    if jars:
        given["spark.jars"] = ",".join(map(str, jars))
    return start_session("land", f"local[{cores}]", given)


def job() -> Any:
    for name in JOBS:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"this checkout has none of {', '.join(JOBS)}")


def by_skylog(bootstrap: str, cores: str) -> Callable[[str, str], None]:
    found = job()
    spark = session([], cores, {})

    def land(topic: str, warehouse: str) -> None:
        settings = found.LandSettings(Path(warehouse), is_audited=False)
        found.land(spark, bootstrap, [topic], settings, group=None)

    return land


def by_connector(bootstrap: str, cores: str, form: str) -> Callable[[str, str], None]:
    from tests.spark.peers.jars import connector_jars, delta_jars

    found = job()
    with_delta = form == "delta"
    spark = session([*connector_jars(), *(delta_jars() if with_delta else [])], cores, DELTA if with_delta else {})
    schema = found.event_schema(found.ENVELOPE)

    def land(topic: str, warehouse: str) -> None:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        rows = found.events_frame(reader.load(), schema, None)
        rows = rows.drop("_table").hint("rebalance", "event_date", "event_hour")  # the same files as the job's
        rows.write.format(form).partitionBy("event_date", "event_hour").mode("append").save(f"{warehouse}/{topic}")

    return land


def serve(kind: str, bootstrap: str, cores: str) -> None:
    answers = os.fdopen(os.dup(1), "w")  # what Spark and its JVM print goes elsewhere
    os.dup2(2, 1)
    land = by_skylog(bootstrap, cores) if kind == "skylog" else by_connector(bootstrap, cores, kind)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        land(*line.split())
        print(time.perf_counter() - began, file=answers, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
