"""Drivers that tests can kill or run with other masters: `python -m tests.spark.writing.sink_job JOB ...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession


def session(master: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    return builder.master(master).config(map=settings).getOrCreate()  # type: ignore[no-any-return]  # untyped


def copy(
    bootstrap: str, source: str, target: str, checkpoint: str, per_trigger: str = "10000", transactional: str = "false"
) -> None:
    """Copy everything that `source` has, in many micro-batches and small batches. Tasks are tried three times."""
    rows = session("local[2,3]").readStream.format("skylog").option("kafka.bootstrap.servers", bootstrap)
    rows = rows.option("subscribe", source).option("startingOffsets", "earliest")
    rows = rows.option("maxOffsetsPerTrigger", per_trigger)
    writer = (
        rows.load().select("key", "value").writeStream.format("skylog").option("kafka.bootstrap.servers", bootstrap)
    )
    writer = writer.option("topic", target).option("kafka.batch.size", 4000).option("kafka.max.request.size", 8000)
    writer = writer.option("transactional", transactional)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def numbers(bootstrap: str, topic: str, count: str, staging: str) -> None:
    """Write the numbers up to `count` in one batch job, in requests so small that sending takes a while."""
    rows = session("local[2]").range(int(count)).selectExpr("cast(id as string) value")
    writer = rows.write.format("skylog").option("kafka.bootstrap.servers", bootstrap).option("stagingLocation", staging)
    writer = writer.option("kafka.batch.size", 400).option("kafka.max.request.size", 800)
    writer.option("topic", topic).mode("append").save()


JOBS: dict[str, Callable[..., None]] = {"copy": copy, "numbers": numbers}

if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
