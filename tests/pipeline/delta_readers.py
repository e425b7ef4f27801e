"""Delta tables as their readers see them, without this project's code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable


def query(table: str | Path, sql: str, **options: Any) -> list[Any]:
    """Return the rows of `sql` about the view `t`, by DuckDB."""
    rows = DeltaTable(str(table), **options).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("t", rows)
        return connection.execute(sql).fetchall()


def file_count(table: str | Path) -> int:
    return len(DeltaTable(str(table)).file_uris())
