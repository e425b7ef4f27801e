"""A table of the warehouse: what its commit log says, and the files that belong to it.

    WAREHOUSE/page_views/event_date=…/event_hour=…/    what readers see, and nothing else: see `visible`
    WAREHOUSE/_skylog/page_views/
        log/        the commits: see `commit_log`
        files/      the Parquet files: side, date, hour, name
        staging/    what is being written; nothing of it counts
        lock        held by the one who writes

A commit: files are moved from staging to files and brought to disk; the log gets its entry, and from then on they are
in the table; readers get their links. A crash leaves files that no commit names, which are removed when the table is
next opened, or links that are missing, which are made then. So the tree that readers see is what the log says, or for
a moment what it said one commit before.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from skylog.clock import Clock, SystemClock
from skylog.spark.jobs.land.commit import Commit, DataFile, Landed, Side
from skylog.spark.jobs.land.commit_log import STATE_EVERY, CommitLog
from skylog.spark.jobs.land.errors import ConcurrentWriterError, TableError
from skylog.spark.jobs.land.files import can_exchange, remove_tree, sync_all
from skylog.spark.jobs.land.staged import StagedFile
from skylog.spark.jobs.land.state import Unreported
from skylog.spark.jobs.land.visible import VisibleTree

HOME: Final = "_skylog"
LOG: Final = "log"
FILES: Final = "files"


def snapshot(path: str | Path, *, unparsed: bool = False) -> list[str]:
    """The files of the newest commit of a table, for a reader that is to see one state of it, whatever is merged.

        duckdb.read_parquet(snapshot("warehouse/page_views"), hive_partitioning=True, union_by_name=True)

    They stay until an hour after they have been replaced. `unparsed` is for the side table.
    """
    home = home_of(Path(path))
    if not (home / LOG).is_dir():
        raise TableError(f"{path} is no table of a warehouse: there is no directory {home / LOG}")
    side = Side.UNPARSED if unparsed else Side.EVENTS
    return sorted(str(home / FILES / file.path) for file in CommitLog(home / LOG).read().files(side))


def home_of(table: Path) -> Path:
    """Where the log and the files of a table are: not below the table, where a reader of all Parquet files would go."""
    table = table.resolve()
    return table.parent / HOME / table.name


class Table:
    """The writer of one table; there is one at a time. Increments and merges may come from two threads.

    Raises ConcurrentWriterError if somebody writes the table already, TableError if it is of another topic.
    """

    def __init__(self, path: Path, topic: str, clock: Clock | None = None) -> None:
        self.path = path.resolve()
        self.topic = topic
        self._home = home_of(path)
        self.files, self.staging = self._home / FILES, self._home / "staging"
        self.clock = clock or SystemClock()
        self._log = CommitLog(self._home / LOG)
        self._tree = VisibleTree(self.path, self.files, self.staging)
        self._turn = Lock()
        self._writer = uuid.uuid4().hex[:8]  # in names of files: nobody writes over those of another
        self._is_sound = True
        try:
            for directory in (self._log.path, self.files, self.staging):
                directory.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
        except OSError as error:
            raise TableError(f"{self.path} cannot be a table: {error.strerror}") from error
        try:
            self.state = self._log.read()
            if self.state.topic not in ("", topic):
                raise TableError(f"{self.path} is the table of topic '{self.state.topic}', not of '{topic}'")
            self._reported_version = self.state.reported_version
            self._repair()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def table_id(self) -> str:
        return self.state.table_id

    @property
    def unreported(self) -> list[Unreported]:
        """Counts that are not known to be in the audit topic."""
        with self._turn:
            return [each for each in self.state.unreported if each.version > self._reported_version]

    def reported(self, version: int) -> None:
        """The counts of all commits up to this one are there. The next commit writes it down."""
        self._reported_version = max(self._reported_version, version)

    def bytes_per_row(self) -> float | None:
        """Of the events so far; None before the first."""
        with self._turn:
            return self.state.bytes_per_row()

    def can_merge(self) -> bool:
        """Whether the file system can exchange directories."""
        return can_exchange(self.staging)

    def land(
        self,
        files: Sequence[StagedFile],
        landed: Sequence[Landed],
        end_offsets: Mapping[int, int],
        columns: Mapping[str, str],
    ) -> None:
        """Put an increment into the table: its files and where it ends, both or neither.

        Raises TableError for one that has landed already, and for a disk that refuses.
        """
        with self._committing():
            for part in landed:
                self._check_new(part)
            now_ms = self.clock.now_ms()
            added = self._move(files, now_ms)
            self._commit(
                Commit(
                    version=self.state.version + 1,
                    time_ms=now_ms,
                    table_id=self.table_id or uuid.uuid4().hex,
                    topic=self.topic,
                    reported_version=self._reported_version,
                    added=added,
                    end_offsets=end_offsets,
                    landed=landed,
                    columns=columns,
                )
            )

    def replace(self, replaced: Sequence[DataFile], files: Sequence[StagedFile]) -> None:
        """Let `files` take the place of some with the same rows. Raises TableError for a disk that refuses."""
        with self._committing():
            self._commit(
                Commit(
                    version=self.state.version + 1,
                    time_ms=self.clock.now_ms(),
                    table_id=self.table_id,
                    topic=self.topic,
                    reported_version=self._reported_version,
                    added=self._move(files, max(file.landed_ms for file in replaced)),
                    removed=[file.path for file in replaced],
                )
            )

    def remove_replaced(self, grace_ms: int) -> None:
        """Remove files from the disk that were replaced so long ago that nobody reads them any more."""
        with self._turn:
            until_ms = self.clock.now_ms() - grace_ms
            for path, replaced_ms in list(self.state.removed.items()):
                if replaced_ms <= until_ms:
                    (self.files / path).unlink(missing_ok=True)
                    del self.state.removed[path]

    def current(self) -> dict[str, list[DataFile]]:
        """The files by directory, each directory's from the oldest on."""
        with self._turn:
            return {
                directory: sorted(files.values(), key=lambda file: file.name)
                for directory, files in self.state.directories.items()
            }

    # -- a commit

    @contextmanager
    def _committing(self) -> Iterator[None]:
        with self._turn:
            try:
                yield
            except OSError as error:
                raise TableError(
                    f"{self.path}: the commit failed ({error}); nothing is lost, run the job again"
                ) from error

    def _check_new(self, part: Landed) -> None:
        end_offset = self.state.end_offsets.get(part.partition, 0)
        if part.start_offset < end_offset:
            raise TableError(
                f"{self.path}: {self.topic}-{part.partition} has landed up to offset {end_offset}, and offset "
                f"{part.start_offset} comes again; if the topic was made anew, land it in another warehouse"
            )

    def _move(self, files: Sequence[StagedFile], landed_ms: int) -> list[DataFile]:
        """From staging to where they stay, durably. They count for nothing until a commit names them."""
        if not self._is_sound:
            raise TableError(f"{self.path}: a commit has failed half-way; open the table again")
        self._is_sound = False
        added, directories = [], {self.files}
        for number, file in enumerate(files):
            path = f"{file.directory}/{self.state.version + 1:020d}-{number}-{self._writer}.parquet"
            target = self.files / path
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(file.path, target)
            added.append(DataFile(path, file.rows, target.stat().st_size, landed_ms))
            directories |= {target, target.parent, target.parent.parent, target.parent.parent.parent}
        sync_all(sorted(directories, reverse=True))
        return added

    def _commit(self, commit: Commit) -> None:
        self._log.append(commit)
        self.state.apply(commit)
        for directory in {file.directory for file in commit.added}:
            self._tree.show(directory, self.state.directories[directory].keys())
        if commit.version % STATE_EVERY == 0:
            self._log.write_state(self.state)
        self._is_sound = True

    # -- opening

    def _take_lock(self) -> int:
        descriptor = os.open(self._home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ConcurrentWriterError(self.path) from None
        return descriptor

    def _repair(self) -> None:
        """Remove what no commit names, and show readers what the commits do."""
        for path in self.staging.iterdir():
            remove_tree(path)
        self._log.remove_drafts()
        known = {f"{directory}/{name}" for directory, files in self.state.directories.items() for name in files}
        known |= self.state.removed.keys()
        for found in self.files.rglob("*.parquet"):
            if found.relative_to(self.files).as_posix() not in known:
                found.unlink()
        for directory, files in self.state.directories.items():
            self._tree.show(directory, files.keys())
