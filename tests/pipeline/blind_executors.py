"""Jobs whose executors do not share the driver's disk: `python -m tests.pipeline.blind_executors BOOTSTRAP DIR`.

Executors are processes of their own (`local-cluster`), and Java is a script that starts each of them in a mount
namespace with an empty file system in the place of DIR. Prints a JSON object: what each job has raised.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from skylog.pipeline.jobs.audit.books import BalanceResult
from skylog.pipeline.jobs.land import LandSettings, land
from skylog.pipeline.jobs.materialize import materialize_job
from skylog.pipeline.jobs.rising import rising_job
from skylog.spark.session import start_session
from tests.pipeline.standalone.cluster import IN_NAMESPACE

TOPIC = "views"
JAVA = f"""#!/bin/sh
case "$*" in
*ExecutorBackend*)
    exec {" ".join(IN_NAMESPACE)} sh -c 'mount -t tmpfs none "$0" && exec "$@"' "$BLIND_TO" "$JAVA" "$@" ;;
*) exec "$JAVA" "$@" ;;
esac
"""


def blinded_session(blind_to: Path, home: Path) -> SparkSession:
    """`home` gets all that is Spark's, by links: workers keep their logs there."""
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    java = home / "blind" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    real = shutil.which("java")
    assert real is not None
    os.environ |= {"SPARK_HOME": str(home), "JAVA_HOME": str(home / "blind"), "JAVA": real, "BLIND_TO": str(blind_to)}
    settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
    return start_session("blind", "local-cluster[1,1,512]", settings)


def landing(spark: SparkSession, bootstrap: str, root: Path) -> None:
    land(spark, bootstrap, [TOPIC], LandSettings(root / "warehouse", is_audited=False))


def materializing(spark: SparkSession, bootstrap: str, root: Path) -> None:
    materialize_job(bootstrap, TOPIC, root / "materialized", "id STRING").run(spark, bootstrap, once=True)


def rising(spark: SparkSession, bootstrap: str, root: Path) -> None:
    rising_job([TOPIC], root / "rising").run(spark, bootstrap, once=True)


def auditing(spark: SparkSession, bootstrap: str, root: Path) -> None:
    columns = "'t' AS topic, id AS window_start_ms, 'stored' AS tier, '' AS source"
    BalanceResult(spark.range(3).selectExpr(*columns.split(", ")), 0, 0, 0).save(root / "balance")


def writing(spark: SparkSession, bootstrap: str, root: Path) -> None:
    rows = spark.range(3).selectExpr("cast(id AS string) value").write.format("skylog").mode("append")
    rows.options(**{"kafka.bootstrap.servers": bootstrap, "topic": TOPIC, "stagingLocation": str(root / "sink")}).save()


JOBS: list[Callable[[SparkSession, str, Path], None]] = [landing, materializing, rising, auditing, writing]


def main(bootstrap: str, root: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        spark = blinded_session(Path(root), Path(home))
        raised: dict[str, str | None] = {}
        for job in JOBS:
            try:
                job(spark, bootstrap, Path(root))
                raised[job.__name__] = None
            except Exception as error:  # the test checks its type
                raised[job.__name__] = f"{type(error).__name__}: {error}"
        print(json.dumps(raised))
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
