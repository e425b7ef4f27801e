"""Staged files made by hand, and what readers find in a table. No Spark."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from skylog.spark.jobs.land.commit import Side
from skylog.spark.jobs.land.staged import StagedFile, landed, staged_files
from skylog.spark.jobs.land.table import Table

BASE_MS = 1_772_366_400_000  # 2026-03-01T12:00Z
HOUR_MS = 3_600_000


def stage(table: Table, offsets: Sequence[int], *, hours: int = 2, side: Side = Side.EVENTS, **more: Any) -> list[Any]:
    """Files such as Spark writes them, of one partition; a record an offset, spread over hours from 12 on."""
    root = table.staging / uuid.uuid4().hex
    for hour in range(hours):
        chosen = [offset for offset in offsets if offset % hours == hour]
        if chosen:
            times = [BASE_MS + hour * HOUR_MS + offset for offset in chosen]
            columns = {
                "id": [f"id-{offset}" for offset in chosen],
                "_partition": pa.array([0] * len(chosen), pa.int32()),
                "_offset": pa.array(chosen, pa.int64()),
                "_timestamp": pa.array([time * 1000 for time in times], pa.timestamp("us", tz="UTC")),
                "_size_bytes": pa.array([10] * len(chosen), pa.int32()),
                **{name: [value] * len(chosen) for name, value in more.items()},
            }
            directory = root / f"_topic={table.topic}" / "event_date=2026-03-01" / f"event_hour={12 + hour}"
            directory.mkdir(parents=True)
            pq.write_table(pa.table(columns), directory / "part-0.parquet")
    return staged_files(root, side).get(table.topic, [])


def put(table: Table, start: int, end: int, *, unparsed: Sequence[int] = (), hours: int = 2, **more: Any) -> None:
    """Land the offsets from `start` up to `end`, and if they have landed already, nothing: as the job would."""
    start = max(start, table.state.end_offsets.get(0, 0))
    if start >= end:
        return
    parsed = [offset for offset in range(start, end) if offset not in unparsed]
    files: list[StagedFile] = stage(table, parsed, hours=hours, **more)
    if unparsed:
        files += stage(table, unparsed, hours=hours, side=Side.UNPARSED)
    columns = {"id": "string", **dict.fromkeys(more, "string")}
    table.land(files, landed(table.topic, files, {0: start}, {0: end}), {0: end}, columns)


def offsets_seen(path: Path) -> list[int]:
    """By DuckDB, which lists the directory as any reader does."""
    pattern = f"{path}/**/*.parquet"
    if not list(path.glob("event_date=*/event_hour=*/*.parquet")):
        return []
    with duckdb.connect() as connection:
        query = "SELECT _offset FROM read_parquet(?, union_by_name=true, hive_partitioning=true)"
        return sorted(row[0] for row in connection.execute(query, [pattern]).fetchall())


def offsets_in(files: Sequence[str]) -> list[int]:
    return sorted(
        offset for file in files for offset in pq.read_table(file, columns=["_offset"])["_offset"].to_pylist()
    )


def offsets_listed(path: Path) -> list[int]:
    """As `offsets_seen`, without the start of DuckDB."""
    return offsets_in([str(file) for file in path.glob("event_date=*/event_hour=*/*.parquet")])
