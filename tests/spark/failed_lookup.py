"""A session whose search for formats fails: `python -m tests.spark.failed_lookup BOOTSTRAP TOPIC DIR`.

Spark starts a Python process for the search. Here it ends at once, as it does on a machine that is too busy to start it
within ten seconds. Prints a JSON object of what happened before and after the format was registered.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from skylog.spark.session import register_format

PYTHON = """#!/bin/sh
case "$*" in *lookup_data_sources*) echo failed >> "$LOOKUPS"; exit 1;; esac
exec "{}" "$@"
"""


def main(bootstrap: str, topic: str, directory: str) -> None:
    python = Path(directory, "python")
    python.write_text(PYTHON.format(os.environ["PYSPARK_PYTHON"]))
    python.chmod(0o755)
    os.environ |= {"PYSPARK_PYTHON": str(python), "LOOKUPS": str(python.with_name("lookups"))}
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    at = {"kafka.bootstrap.servers": bootstrap}

    def read() -> int:
        return spark.read.format("skylog").options(**at, subscribe=topic).load().count()

    def write() -> int:
        rows = spark.range(3).selectExpr("cast(id AS string) value").write.format("skylog").mode("append")
        rows.options(**at, topic=topic, stagingLocation=directory).save()
        return 3

    found = {"before": [_outcome(read), _outcome(write)]}
    register_format(spark)
    found["after"] = [_outcome(write), _outcome(read)]
    print(json.dumps({**found, "lookups": Path(os.environ["LOOKUPS"]).read_text().split()}))
    spark.stop()


def _outcome(action: Callable[[], int]) -> str:
    try:
        return str(action())
    except Exception as error:  # the test looks for its condition
        return str(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
