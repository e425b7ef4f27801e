"""Reads Delta tables with delta-spark, and nothing of skylog: `python delta_reader.py JARS TABLE SQL…`.

Prints a JSON list of the rows of each query about the view `t`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def main(jars: str, table: str, *queries: str) -> None:
    builder: Any = SparkSession.builder
    spark = builder.master("local[1]").config(map={**SETTINGS, "spark.jars": jars}).getOrCreate()
    spark.read.format("delta").load(table).createOrReplaceTempView("t")
    print(json.dumps([[list(row) for row in spark.sql(query).collect()] for query in queries], default=str))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
