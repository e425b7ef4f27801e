"""A Spark driver that has the JVM connector beside ours: `python -m tests.spark.peers.driver JARS`.

Takes one request per line as JSON and answers with one line of JSON, so that one JVM serves all tests. Bytes travel as
hexadecimal text.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession


def session(jars: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    found: SparkSession = builder.master("local[2]").config(map=settings).getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    return found


def read(spark: SparkSession, form: str, options: dict[str, str]) -> dict[str, Any]:
    """All rows, the columns and the number of tasks."""
    frame = spark.read.format(form).options(**options).load()
    return {"columns": frame.dtypes, "tasks": frame.rdd.getNumPartitions(), "rows": rows(frame)}


def stream(spark: SparkSession, form: str, options: dict[str, str], checkpoint: str) -> list[list[Any]]:
    """What a query with trigger AvailableNow reads, by micro-batch."""
    found: list[list[Any]] = []
    frame = spark.readStream.format(form).options(**options).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.append(rows(batch)))
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return found


def write(spark: SparkSession, form: str, options: dict[str, str], count: int, columns: list[str]) -> None:
    """The numbers up to `count` as rows of these expressions over `id`."""
    frame = spark.range(0, count, 1, 2).selectExpr(*columns)
    frame.write.format(form).options(**options).mode("append").save()


def write_stream(
    spark: SparkSession, form: str, options: dict[str, str], source: dict[str, str], columns: list[str]
) -> None:
    """What our own source has, as a stream, and then as a stream with the same checkpoint again."""
    for _ in range(2):
        frame = spark.readStream.format("skylog").options(**source).load().selectExpr(*columns)
        frame.writeStream.format(form).options(**options).trigger(availableNow=True).start().awaitTermination()


def rows(frame: DataFrame) -> list[Any]:
    found = [_plain(row) for row in frame.collect()]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _plain(value: Any) -> Any:
    match value:
        case Row():
            return {name: _plain(each) for name, each in value.asDict().items()}
        case list():
            return [_plain(each) for each in value]
        case bytes() | bytearray():
            return value.hex()
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


COMMANDS: dict[str, Callable[..., Any]] = {"read": read, "stream": stream, "write": write, "write_stream": write_stream}


def serve(spark: SparkSession, answers: Any) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": COMMANDS[request.pop("command")](spark, **request)}
        except Exception as error:  # the test says whether it is one
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    lines = os.fdopen(os.dup(1), "w")  # what Spark and its JVM print goes elsewhere
    os.dup2(2, 1)
    serve(session(sys.argv[1]), lines)
