"""Files of tasks: written, seen from the driver, removed when their time is over."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from skylog.errors import SkylogError
from skylog.records import BatchHeader
from skylog.spark.errors import OptionError
from skylog.spark.writing.staging import (
    StagedFile,
    StagingFile,
    check_files,
    durable_directory,
    remove_staged,
    staging_directory,
)
from skylog.spark.writing.write_options import write_options

from .sink_staged import stage_values


def test_a_file_holds_its_batches_where_it_says(tmp_path: Path) -> None:
    staged = stage_values(tmp_path / "new", "t", [b"%d" % number for number in range(50)], partitions=2)
    content = Path(staged.path).read_bytes()
    assert len(staged.batches) > 2
    for batch in staged.batches:
        header = BatchHeader.read(content, batch.position)
        assert (header.size_bytes, header.record_count) == (batch.size_bytes, batch.record_count)
    assert sum(batch.size_bytes for batch in staged.batches) == len(content)
    assert sum(batch.record_count for batch in staged.batches) == 50


def test_a_task_without_rows_makes_no_file(tmp_path: Path) -> None:
    assert StagingFile(tmp_path / "new", 0, 0).finish("", durable=True).path == ""
    assert not (tmp_path / "new").exists()


def test_a_discarded_file_is_gone(tmp_path: Path) -> None:
    staged = stage_values(tmp_path, "t", [b"x"])
    header = BatchHeader.read(Path(staged.path).read_bytes())
    file = StagingFile(tmp_path, 1, 0)
    file.add(staged.batches[0].target, header, b"")
    assert len(list(tmp_path.iterdir())) == 2
    file.discard()
    assert [str(path) for path in tmp_path.iterdir()] == [staged.path]


def test_files_of_later_micro_batches_stay(tmp_path: Path) -> None:
    staged = [stage_values(tmp_path, "t", [b"x"], batch_id=number).path for number in (1, 2, 10, 11)]
    remove_staged(tmp_path, 10, keep=[staged[1]])
    assert sorted(map(str, tmp_path.iterdir())) == sorted([staged[1], staged[3]])


def test_a_file_that_the_driver_does_not_see_is_named_with_the_option() -> None:
    with pytest.raises(SkylogError, match=r"/nowhere/f\.staged.*on far-away.*stagingLocation"):
        check_files([StagedFile("/nowhere/f.staged", (), "far-away")])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"stagingLocation": "/shared/a b"}, "/shared/a b"),
        ({"stagingLocation": "file:///shared/a%20b", "checkpointLocation": "/checkpoint"}, "/shared/a b"),
        ({"checkpointLocation": "/checkpoint"}, "/checkpoint/skylog-sink"),
        ({"checkpointLocation": "s3://bucket/checkpoint"}, None),
        ({}, None),
    ],
)
def test_files_lie_where_the_options_say_or_else_in_a_directory_that_does_not_last(
    given: dict[str, str], expected: str | None
) -> None:
    options = write_options({"kafka.bootstrap.servers": "127.0.0.1:9092", **given})
    assert durable_directory(options) == (Path(expected) if expected else None)
    if expected is None:
        assert staging_directory(options).is_relative_to(tempfile.gettempdir())


def test_a_staging_location_that_is_no_directory_is_refused() -> None:
    options = write_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "stagingLocation": "s3://bucket/staging"})
    with pytest.raises(
        OptionError, match="stagingLocation=s3://bucket/staging: a stream without transactions needs a mounted"
    ):
        staging_directory(options)
