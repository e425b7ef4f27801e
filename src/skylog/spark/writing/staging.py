"""Staged files: encoded batches that are not sent yet, one file per task attempt.

A file is complete when the task returns its `StagedFile`. A failed attempt deletes its file. A file left by a killed
process is deleted with the files of its micro-batch.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import unquote

from pyspark.sql.datasource import WriterCommitMessage

from skylog.durable_files import sync_directory
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.records.batch import BatchHeader
from skylog.spark.errors import OptionError
from skylog.spark.writing.write_options import WriteOptions

SUFFIX: Final = ".staged"
_DIRECTORY: Final = "skylog-sink"
_LOCATION: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://(?=/))?)?(.*)", re.DOTALL)


class StagedBatch(NamedTuple):
    """The position of a batch in its file, and its target partition."""

    topic: str
    partition: int
    position: int
    size_bytes: int
    record_count: int

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class StagedFile(WriterCommitMessage):
    """The commit message of a task. `path` is empty if there were no rows, `query_id` if it is not a stream."""

    path: str
    batches: tuple[StagedBatch, ...]
    host: str
    query_id: str = ""

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)


class StagingFile:
    """The file of one attempt, created with its first batch. Close it with `finish` or `discard`."""

    def __init__(self, directory: Path, batch_id: int, task: int) -> None:
        self._path = directory / f"{batch_id}-{task}-{uuid.uuid4().hex}{SUFFIX}"
        self._file: BinaryIO | None = None
        self._position = 0
        self._batches: list[StagedBatch] = []

    def add(self, target: TopicPartition, header: BatchHeader, records: bytes | memoryview) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("xb", buffering=0)
        for part in (header.pack(), records):
            _write_all(self._file, part)
        self._batches.append(StagedBatch(*target, self._position, header.size_bytes, header.record_count))
        self._position += header.size_bytes

    def finish(self, query_id: str, *, durable: bool) -> StagedFile:
        """Close the complete file. If `durable`, sync it to disk first."""
        if self._file is None:
            return StagedFile("", (), socket.gethostname(), query_id)
        if durable:
            os.fsync(self._file.fileno())
            sync_directory(self._path.parent)
        self._file.close()
        return StagedFile(str(self._path), tuple(self._batches), socket.gethostname(), query_id)

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


def staging_directory(options: WriteOptions) -> Path:
    """Return the absolute directory for staged files. Call this in the driver: executors have other directories.

    Raises OptionError if stagingLocation is not a local path.
    """
    return durable_directory(options) or temporary_directory()


def temporary_directory() -> Path:
    """Return a directory of this machine for staged files."""
    return Path(tempfile.gettempdir(), f"{_DIRECTORY}-{os.getuid()}")


def is_local(location: str) -> bool:
    """Return whether a location is a path or a `file:` URI."""
    return _local_path(location, str) is not None


def remote_location(options: WriteOptions) -> str | None:
    """Return stagingLocation if it is in an object store."""
    location = options.staging_location
    return location if location is not None and not is_local(location) else None


def durable_directory(options: WriteOptions) -> Path | None:
    """Return stagingLocation, or a directory beside the checkpoint. None if only a temporary directory is left."""
    if options.staging_location is not None:
        path = _local_path(options.staging_location, unquote)
        if path is None:
            raise OptionError(
                f"stagingLocation={options.staging_location}: a stream without transactions needs a mounted directory, "
                "because it locks and replaces files there to send every micro-batch once. Set transactional=true, or "
                "mount a volume that the driver and all executors share"
            )
        return path
    # Spark does not decode the path of a checkpoint.
    beside = options.checkpoint_location and _local_path(options.checkpoint_location, str)
    return beside / _DIRECTORY if beside else None


def _local_path(location: str, decode: Callable[[str], str]) -> Path | None:
    """Return the local path of `location`, or None. `decode` is applied to the path of a `file:` URI."""
    match = _LOCATION.fullmatch(location)
    assert match is not None, location
    scheme, path = match.groups()
    if scheme is None:
        return Path(path).absolute()
    return Path(decode(path)).absolute() if scheme == "file" else None


def check_files(files: Iterable[StagedFile]) -> None:
    """Raise SkylogError unless all files are visible from here in full length."""
    for file in files:
        if file.path and _size_bytes(file.path) != file.size_bytes:
            raise SkylogError(
                f"{file.path}, written by a task on {file.host}, is missing or incomplete on {socket.gethostname()}: "
                "set the option stagingLocation to a directory that the driver shares with all executors"
            )


def _size_bytes(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def remove_files(paths: Iterable[str]) -> None:
    for path in paths:
        if path:
            Path(path).unlink(missing_ok=True)


def remove_staged(directory: Path, last_batch_id: int, keep: Collection[str] = ()) -> None:
    """Delete the files of all attempts of micro-batches up to this one, except `keep`."""
    for path in directory.glob("*" + SUFFIX):
        if is_staged(path.name, last_batch_id) and str(path) not in keep:
            path.unlink(missing_ok=True)


def is_staged(name: str, last_batch_id: int) -> bool:
    """Return whether a file has this name because it is of a micro-batch up to this one."""
    batch_id = name.partition("-")[0]
    return name.endswith(SUFFIX) and batch_id.isdecimal() and int(batch_id) <= last_batch_id


def _write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]
