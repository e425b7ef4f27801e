"""Reads, writes, streams and runs a job with whatever PySpark runs it: `python smoke.py BOOTSTRAP TOPIC DIR`.

Imports nothing of the tests. Prints a JSON object of what it read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from skylog.pipeline import Table, job
from skylog.spark.session import start_session


def main(bootstrap: str, topic: str, directory: str) -> None:
    spark = start_session("smoke", "local[1]")
    at = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.read.format("skylog").options(**at, subscribe=topic, includeHeaders="true").load()
    found: dict[str, Any] = {"pyspark": pyspark.__version__, "read": _values(rows)}
    written = spark.createDataFrame([("k", "written")], "key string, value string").write.format("skylog")
    written.options(**at, topic=topic, stagingLocation=directory).mode("append").save()
    stream = spark.readStream.format("skylog").options(**at, subscribe=topic, startingOffsets="earliest")
    copied = stream.option("maxOffsetsPerTrigger", 1).load().select("key", "value").writeStream.format("skylog")
    copied = copied.options(**at, topic=f"{topic}-copy", checkpointLocation=str(Path(directory, "checkpoint")))
    query = copied.trigger(availableNow=True).start()
    query.awaitTermination()
    found["batches"] = len(query.recentProgress)
    found["copied"] = _values(spark.read.format("skylog").options(**at, subscribe=f"{topic}-copy").load())
    keep(spark, bootstrap, topic, Path(directory, "table"))
    found["table"] = sorted(row.value for row in Table(Path(directory, "table")).read(spark).collect())
    print(json.dumps(found))
    spark.stop()


def keep(spark: SparkSession, bootstrap: str, topic: str, table: Path) -> None:
    """Run a job of the pipeline."""
    values = job(topic, Table(table), schema=None)(lambda records: records.selectExpr("string(value) AS value"))
    values.run(spark, bootstrap, once=True)


def _values(rows: Any) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.collect())


if __name__ == "__main__":
    main(*sys.argv[1:])
