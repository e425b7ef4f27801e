"""A client of Spark Connect, as a process: `python -m tests.spark.connect_client BOOTSTRAP TOPIC DIR`.

A process can use Spark Connect or Spark itself, not both. The server runs below it. Prints what it read as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from skylog.spark.session import make_active, register_format


def main(bootstrap: str, topic: str, directory: str) -> None:
    spark = SparkSession.builder.remote("local[1]").config("spark.driver.memory", "1g").getOrCreate()
    at = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.read.format("skylog").options(**at, subscribe=topic).load()
    found: dict[str, object] = {"columns": rows.columns, "read": _values(rows)}
    written = spark.createDataFrame([("k", "written")], "key string, value string").write.format("skylog")
    written.options(**at, topic=topic, stagingLocation=directory).mode("append").save()
    register_format(spark)  # a second time, because Spark has found it
    make_active(spark)
    stream = spark.readStream.format("skylog").options(**at, subscribe=topic, startingOffsets="earliest").load()
    copied = stream.select("key", "value").writeStream.format("skylog").options(**at, topic=f"{topic}-copy")
    query = copied.option("checkpointLocation", str(Path(directory, "checkpoint"))).trigger(availableNow=True).start()
    query.awaitTermination()
    found["copied"] = _values(spark.read.format("skylog").options(**at, subscribe=f"{topic}-copy").load())
    print(json.dumps(found))
    spark.stop()


def _values(rows: object) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.collect())  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(*sys.argv[1:])
