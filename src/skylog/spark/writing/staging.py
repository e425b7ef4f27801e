"""What tasks have encoded and nobody has sent yet: one file per attempt of a task, batches one behind the other.

A file is complete when the task hands over its `StagedFile`; an attempt that fails removes its own. What an attempt
leaves behind when its process is killed is removed with the files of its micro-batch.
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

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.records.batch import BatchHeader
from skylog.spark.errors import OptionError
from skylog.spark.writing.write_options import WriteOptions
from skylog.storage.files import sync_directory

SUFFIX: Final = ".staged"
_DIRECTORY: Final = "skylog-sink"
_LOCATION: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://(?=/))?)?(.*)", re.DOTALL)


class StagedBatch(NamedTuple):
    """Where one batch lies in its file, and where it is to go."""

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
    """What a task tells the driver. `path` is empty where there were no rows, `query_id` where there is no stream."""

    path: str
    batches: tuple[StagedBatch, ...]
    host: str
    query_id: str = ""

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)


class StagingFile:
    """The file of one attempt, made with its first batch. Closed with `finish` or `discard`."""

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
        """The file is whole; `durable` makes it outlive a failure of the machine."""
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
    """The directory for staged files. Raises OptionError where the option names none that can be opened as a file."""
    return lasting_directory(options) or Path(tempfile.gettempdir(), f"{_DIRECTORY}-{os.getuid()}")


def lasting_directory(options: WriteOptions) -> Path | None:
    """The directory that the options name, or that lies beside the checkpoint; None if there is but a temporary one."""
    if options.staging_location is not None:
        path = _local_path(options.staging_location, unquote)
        if path is None:
            raise OptionError(f"stagingLocation={options.staging_location}: expected a directory that can be mounted")
        return path
    beside = options.checkpoint_location and _local_path(options.checkpoint_location, str)  # Spark decodes none
    return beside / _DIRECTORY if beside else None


def _local_path(location: str, decode: Callable[[str], str]) -> Path | None:
    """The path that `location` names, or None. `decode` is for what follows `file:`."""
    match = _LOCATION.fullmatch(location)
    assert match is not None, location
    scheme, path = match.groups()
    if scheme is None:
        return Path(path).absolute()
    return Path(decode(path)).absolute() if scheme == "file" else None


def check_files(files: Iterable[StagedFile]) -> None:
    """Raise SkylogError unless all files can be seen from here, as long as they were written."""
    for file in files:
        if file.path and _size_bytes(file.path) != file.size_bytes:
            raise SkylogError(
                f"{file.path}, which a task has written on {file.host}, is not there on {socket.gethostname()}, or not "
                "all of it: set the option stagingLocation to a directory that the driver shares with all executors"
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
    """Remove what attempts of micro-batches up to this one have left, whether they were used or not."""
    for path in directory.glob("*" + SUFFIX):
        if int(path.name.split("-", 1)[0]) <= last_batch_id and str(path) not in keep:
            path.unlink(missing_ok=True)


def _write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while len(view):
        view = view[file.write(view) :]
