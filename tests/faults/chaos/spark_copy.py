"""Keeps a Delta table of a topic with Spark while brokers fail: `spark_copy.py BOOTSTRAP TOPIC DIR`.

It runs until its standard input is closed, then once more, and prints the values of the table, one per line.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from skylog.pipeline import Table, job
from skylog.spark.session import start_session


def main(bootstrap: str, topic: str, directory: str) -> None:
    spark = start_session("chaos", "local[1]")
    table = Table(Path(directory, "table"))
    values = job(topic, table, schema=None)(lambda records: records.selectExpr("string(value) AS value"))
    stopping = threading.Event()
    threading.Thread(target=_wait_for_owner, args=(stopping,), daemon=True).start()
    while not stopping.wait(1.0):
        try:
            values.run(spark, bootstrap, once=True)
        except Exception as error:  # the brokers are away; what was written before is continued
            print(f"failed: {type(error).__name__}", file=sys.stderr, flush=True)
    values.run(spark, bootstrap, once=True)
    for row in table.read(spark).collect():
        print(row.value)
    spark.stop()


def _wait_for_owner(stopping: threading.Event) -> None:
    sys.stdin.read()
    stopping.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
