"""A table of Parquet files that is replaced as a whole. Knows files and versions, not what is in the rows.

    TABLE/current                     a link to the newest version, swapped by one rename: what readers open
    TABLE/versions/<number>/          the rows, and `_version.json`: up to where the topics are in them, and more
    TABLE/<part>/<number>/            what a job keeps beside the rows of that version
    TABLE/_staging/                   versions in the making
    TABLE/_lock                       held by the one job that writes

A version is complete and on the disk before `current` names it, so a reader finds this version or the one before, and
offsets and rows never disagree. What a crash leaves half done has a number beyond `current`, or lies in `_staging`: the
next job that opens the table removes it. File names are never used twice, so a reader that listed a version which has
been removed since gets an error, never rows of two versions.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.spark.jobs.directories import check_directory
from skylog.spark.reading.positions import offsets_from_json, offsets_json
from skylog.storage.files import sync_directory

KEPT_VERSIONS: Final = 3
"""Readers that opened a version have as many commits, less one, to finish."""
_CURRENT: Final = "current"
_VERSIONS: Final = "versions"
_STAGING: Final = "_staging"
_LOCK: Final = "_lock"
_FACTS: Final = "_version.json"
_NUMBER: Final = re.compile(r"[0-9]{20}")


class TableError(SkylogError):
    """A table that cannot be written or read as asked."""


@dataclass(frozen=True)
class Version:
    """One state of the table. `offsets` are where the topics are read to; `facts` are the job's own."""

    number: int
    path: Path
    offsets: Mapping[TopicPartition, int]
    facts: Mapping[str, Any]


class Draft:
    """A version in the making: directories for Spark to write to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def rows(self) -> Path:
        return self._path / _VERSIONS

    def part(self, name: str) -> Path:
        return self._path / name


class VersionedTable:
    """The table for the job that writes it: `with VersionedTable(path) as table`. Parts in `history` are kept for ever,
    other parts as long as their version. Raises DirectoryError for a URI."""

    def __init__(self, path: Path, history: frozenset[str] = frozenset()) -> None:
        self.path = check_directory(path).absolute()
        self.history = history
        self._lock: int | None = None
        self.version: Version | None = None

    def __enter__(self) -> Self:
        self._lock = self._take_lock()
        try:
            self.version = newest_version(self.path)
            self._remove_leftovers()
        except BaseException:
            self._release()
            raise
        return self

    def _take_lock(self) -> int:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not (self.path / _LOCK).exists() and any(self.path.iterdir()):
                raise TableError(f"{self.path} holds something else than a table: name a directory that is new")
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise TableError(f"{self.path} cannot be a table: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise TableError(f"{self.path}: another job writes this table; end it first, or name another") from None
        return lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)  # and with it the lock
            self._lock = None

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Room for the next version; gone at the end of the block, unless it was committed."""
        path = self.path / _STAGING / uuid.uuid4().hex
        path.mkdir(parents=True)
        try:
            yield Draft(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def commit(self, draft: Draft, offsets: Mapping[TopicPartition, int], facts: Mapping[str, Any]) -> Version:
        """Let `draft` be the newest version."""
        number = self.version.number + 1 if self.version else 1
        document = {"offsets": offsets_json(offsets), "facts": facts}
        (draft.rows / _FACTS).write_text(json.dumps(document))
        parts = sorted(path for path in draft.rows.parent.iterdir() if path != draft.rows)
        for staged in (*parts, draft.rows):  # the rows last: a version that is there is there with its parts
            _sync_tree(staged)
            directory = self.path / staged.name
            directory.mkdir(exist_ok=True)
            staged.rename(directory / _name(number))
            sync_directory(directory)
        self._point_to(number)
        self.version = _read_version(self.path, number)
        self._remove_old(number)
        return self.version

    def check_follows(self, starts: Mapping[TopicPartition, int]) -> None:
        """Raise TableError if records from `starts` on are in the table already."""
        known = self.version.offsets if self.version is not None else {}
        for key, start in starts.items():
            if start < known.get(key, start):
                raise TableError(
                    f"{self.path} has {key} up to offset {known[key]}, and was given it from {start} again"
                )

    def _point_to(self, number: int) -> None:
        link = self.path / _STAGING / _CURRENT
        link.unlink(missing_ok=True)
        link.symlink_to(Path(_VERSIONS, _name(number)))
        link.rename(self.path / _CURRENT)
        sync_directory(self.path)

    def _remove_leftovers(self) -> None:
        shutil.rmtree(self.path / _STAGING, ignore_errors=True)
        newest = self.version.number if self.version else 0
        for path in self._numbered():
            if int(path.name) > newest:
                shutil.rmtree(path)

    def _remove_old(self, newest: int) -> None:
        for path in self._numbered():
            if int(path.name) <= newest - KEPT_VERSIONS and path.parent.name not in self.history:
                shutil.rmtree(path)

    def _numbered(self) -> list[Path]:
        return [
            path
            for path in self.path.glob("*/*")
            if _NUMBER.fullmatch(path.name) and path.parent.name not in (_CURRENT, _STAGING)
        ]


def newest_version(table: Path) -> Version | None:
    """The newest version of a table; None where there is none yet. Its `path` stays the same when others follow."""
    try:
        target = os.readlink(table / _CURRENT)
    except FileNotFoundError:
        return None
    return _read_version(table.absolute(), int(Path(target).name))


def version_before(version: Version) -> Version | None:
    """The version before, as long as it is kept."""
    table, number = version.path.parents[1], version.number - 1
    return _read_version(table, number) if (table / _VERSIONS / _name(number)).is_dir() else None


def part_path(version: Version, name: str) -> Path:
    """Where a version's part lies."""
    return version.path.parents[1] / name / version.path.name


def _read_version(table: Path, number: int) -> Version:
    path = table / _VERSIONS / _name(number)
    try:
        document = json.loads((path / _FACTS).read_text())
        return Version(number, path, offsets_from_json(document["offsets"]), document["facts"])
    except (OSError, ValueError, KeyError) as error:
        raise TableError(f"{path / _FACTS} cannot be read ({error}): make the table anew in another place") from error


def _name(number: int) -> str:
    return f"{number:020}"


def _sync_tree(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            _sync_tree(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_directory(directory)
