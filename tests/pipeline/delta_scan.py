"""Reads a Delta table with DuckDB's `delta_scan`: `python delta_scan.py TABLE SQL…`, with `duckdb-extension-delta`.

Imports nothing of the tests, because its DuckDB may be another version. Prints a JSON list of the rows of each query
about the view `t`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_delta


def main(table: str, *queries: str) -> None:
    (extension,) = Path(duckdb_extension_delta.__path__[0]).glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"CREATE VIEW t AS SELECT * FROM delta_scan('{table}')")
        print(json.dumps([connection.execute(query).fetchall() for query in queries], default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
