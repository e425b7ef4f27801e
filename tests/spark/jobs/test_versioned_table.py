"""A table that is replaced as a whole: a reader finds one version or the next, whatever dies when."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from threading import Event, Thread

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skylog.model import TopicPartition
from skylog.spark.jobs.versioned_table import (
    KEPT_VERSIONS,
    TableError,
    VersionedTable,
    newest_version,
    part_path,
    version_before,
)

PARTITION = TopicPartition("users", 0)
FILES, ROWS = 4, 25


def write_version(table: VersionedTable, number: int) -> None:
    """A version of several files, all of whose rows carry its number."""
    with table.draft() as draft:
        for directory in (draft.rows, draft.part("changes"), draft.part("counts")):
            directory.mkdir()
            for _ in range(FILES):
                rows = pa.table({"version": pa.array([number] * ROWS)})
                pq.write_table(rows, directory / f"{uuid.uuid4().hex}.parquet")
        table.commit(draft, {PARTITION: number * 10}, {"number": number})


def versions_in(directory: Path) -> list[tuple[int, int]]:
    """The numbers that rows carry, as DuckDB sees them, each with how many there are."""
    with duckdb.connect() as connection:
        query = f"SELECT version, count(*) FROM read_parquet('{directory}/*.parquet') GROUP BY ALL"
        return connection.execute(query).fetchall()


def test_rows_offsets_and_facts_come_together(tmp_path: Path) -> None:
    assert newest_version(tmp_path / "table") is None
    with VersionedTable(tmp_path / "table") as table:
        assert table.version is None
        for number in (1, 2):
            write_version(table, number)
            found = newest_version(tmp_path / "table")
            assert found == table.version
            assert found is not None
            assert (found.number, found.offsets, found.facts) == (number, {PARTITION: number * 10}, {"number": number})
            assert versions_in(tmp_path / "table" / "current") == [(number, FILES * ROWS)]
            assert versions_in(part_path(found, "counts")) == [(number, FILES * ROWS)]
        assert found is not None
        assert found.number == 2
        before = version_before(found)
        assert before is not None
        assert versions_in(before.path) == [(1, FILES * ROWS)]
    with VersionedTable(tmp_path / "table") as again:
        assert again.version == found


def test_old_versions_go_and_history_stays(tmp_path: Path) -> None:
    with VersionedTable(tmp_path, history=frozenset(["changes"])) as table:
        for number in range(1, 7):
            write_version(table, number)
    assert len(list((tmp_path / "versions").iterdir())) == KEPT_VERSIONS
    assert len(list((tmp_path / "counts").iterdir())) == KEPT_VERSIONS
    assert len(list((tmp_path / "changes").iterdir())) == 6


def test_only_one_job_writes_a_table(tmp_path: Path) -> None:
    with VersionedTable(tmp_path), pytest.raises(TableError, match="another job writes this table"):
        VersionedTable(tmp_path).__enter__()
    with VersionedTable(tmp_path) as table:
        write_version(table, 1)


def test_a_draft_that_is_not_committed_leaves_nothing(tmp_path: Path) -> None:
    with VersionedTable(tmp_path) as table:
        write_version(table, 1)
        with table.draft() as draft:
            draft.rows.mkdir()
        assert table.version == newest_version(tmp_path)
        assert list((tmp_path / "_staging").iterdir()) == []


@pytest.mark.parametrize("renames", range(4))  # two parts, the rows, the link
def test_a_writer_that_dies_leaves_the_version_before(tmp_path: Path, renames: int) -> None:
    with VersionedTable(tmp_path, history=frozenset(["changes"])) as table:
        write_version(table, 1)
    command = [sys.executable, "-m", "tests.spark.jobs.dying_writer", str(tmp_path), str(renames)]
    assert subprocess.run(command, timeout=60).returncode == 9
    assert versions_in(tmp_path / "current") == [(1, FILES * ROWS)]
    with VersionedTable(tmp_path, history=frozenset(["changes"])) as table:
        assert table.version is not None
        assert table.version.offsets == {PARTITION: 10}
        assert {path.name for part in ("versions", "changes", "counts") for path in (tmp_path / part).iterdir()} == {
            table.version.path.name
        }
        write_version(table, 2)
    assert versions_in(tmp_path / "current") == [(2, FILES * ROWS)]


def test_readers_see_whole_versions_while_they_are_replaced(tmp_path: Path) -> None:
    with VersionedTable(tmp_path) as table:
        write_version(table, 1)
        stop = Event()

        def write() -> None:
            number = 1
            while not stop.is_set():
                number += 1
                write_version(table, number)

        done = Thread(target=write)
        done.start()
        seen: set[int] = set()
        try:
            while len(seen) < 15:
                try:
                    found = versions_in(tmp_path / "current")
                except duckdb.IOException:  # it has listed a version that is gone now: that is what it is told
                    continue
                assert [count for _, count in found] == [FILES * ROWS]
                seen.add(found[0][0])
        finally:
            stop.set()
            done.join()


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "2024"
    logs.mkdir(parents=True)
    with pytest.raises(TableError, match="holds something else"), VersionedTable(tmp_path):
        pass
    assert logs.is_dir()


def test_a_path_that_cannot_be_a_table_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(TableError, match=f"{file} cannot be a table"), VersionedTable(file):
        pass
