"""The data directory: its logs, and the files that are read before a log can be opened.

    meta.properties                    cluster id and node id
    recovery-point-offset-checkpoint   per log, the offset up to which it is known to be on disk
    log-start-offset-checkpoint        per log, its start offset
    cleaner-offset-checkpoint          per log, the offset up to which it is compacted
    replication-offset-checkpoint      per log, its high watermark, which a member of a cluster begins with
    clean-shutdown                     exists only between a clean stop and the next start: the size of each log
    first-join                         exists until a new broker has joined its cluster for the first time
    incarnation                        the number of the last incarnation that the broker has begun in its cluster
    lock                               locked by the broker that uses the directory
    <topic>-<partition>/               one log each; its `partition.metadata` holds the topic id
    <…>.deleted                        logs of deleted topics, about to be removed

The caller chooses the threads, and never calls from two of them at the same time.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from skylog.clock import Clock
from skylog.config import read_properties
from skylog.durable_files import replace_file, sync_directory
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_checkpoint,
    write_checkpoint,
)
from skylog.storage.config import LogConfig
from skylog.storage.files import FilePool, LogFile, OpenFile
from skylog.storage.log import Log
from skylog.storage.partition_metadata import read_topic_id
from skylog.storage.segment import segment_bases, segment_path

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN: Final = "clean-shutdown"
FIRST_JOIN: Final = "first-join"
INCARNATION: Final = "incarnation"
META_PROPERTIES: Final = "meta.properties"
CLOSING_THREADS: Final = 8  # disks complete concurrent fsyncs faster than one after the other
DELETED_SUFFIX: Final = ".deleted"
_LONGEST_WHOLE_NAME: Final = 200
_LOG_FOLDER_NAME = re.compile(r"[a-zA-Z0-9._-]+(-\d+|\.[0-9a-f]{32}\.deleted)")
_LOG_FILE_NAME = re.compile(
    r"(\d{20}\.(log|index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\.metadata)(\.deleted|\.tmp)?"
    r"|\d{20}-\d{20}\.swap|cleaning"
)
CHECKPOINTS: Final = {
    RECOVERY_POINTS: "recovery_point",
    LOG_STARTS: "log_start_offset",
    CLEANER_OFFSETS: "first_dirty_offset",
    HIGH_WATERMARKS: "high_watermark",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """The ids of the cluster, the broker and the data directory. They never change for a data directory."""

    cluster_id: str
    node_id: int
    directory_id: str


class LogDir:
    """The open data directory. `clean` is true after a clean stop: logs are then opened without reading them."""

    def __init__(self, path: Path, clock: Clock, open_file: OpenFile = LogFile) -> None:
        self.path = path.absolute()
        self._clock = clock
        self.pool = FilePool(open_file)
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._acquire_lock()
        self.logs: dict[TopicPartition, Log] = {}
        self._kept: dict[tuple[str, UUID], Path] = {}  # renamed folders of deleted topics, by former name and topic id
        self._kept_as: dict[Path, tuple[str, UUID]] = {}
        for aside in self.path.glob(f"*{DELETED_SUFFIX}"):
            self.keep(aside)
        self._found = {file: read_checkpoint(self.path / file) for file in CHECKPOINTS}
        self._checkpointing = threading.Lock()
        self._checkpoints_taken = self._checkpoints_written = 0
        self._checkpointed = {name for offsets in self._found.values() for name in offsets}
        marker = self.path / CLEAN_SHUTDOWN
        self.clean = marker.exists()
        self._closed_sizes = read_checkpoint(marker)
        with self._writing():
            marker.unlink(missing_ok=True)
            sync_directory(self.path)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise SkylogError if the directory cannot be written to: it is read-only, or its disk is full."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise SkylogError(f"{self.path} cannot be a data directory: {reason}; choose another --data-dir") from error

    def _acquire_lock(self) -> int:
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise SkylogError(
                f"{self.path} is in use by another broker; stop it or choose another --data-dir"
            ) from None
        return fd

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster in meta.properties, or None before the first start."""
        stored = _read_identity(self.path / META_PROPERTIES)
        return stored.cluster_id if stored is not None else None

    def identify(self, node_id: int, cluster_id: str | None = None) -> Identity:
        """Return the identity in meta.properties, created at the first start.

        `cluster_id` is that of the cluster to join, None for a standalone broker. Raises SkylogError if the directory
        belongs to another broker or cluster.
        """
        path = self.path / META_PROPERTIES
        stored = _read_identity(path)
        if stored is None:
            identity = Identity(cluster_id or new_id(), node_id, new_id())
        elif stored.node_id != node_id:
            raise SkylogError(f"{self.path} belongs to broker {stored.node_id}, but this broker has node.id={node_id}")
        elif cluster_id not in (None, stored.cluster_id):
            raise SkylogError(
                f"{self.path} belongs to cluster {stored.cluster_id}, but the metadata store to cluster {cluster_id}; "
                "choose another --data-dir, or the right metadata store"
            )
        elif stored.directory_id:
            return stored
        else:
            identity = Identity(stored.cluster_id, node_id, new_id())
        lines = ["version=1", f"cluster.id={identity.cluster_id}", f"node.id={node_id}"]
        lines.append(f"directory.id={identity.directory_id}")
        with self._writing():
            replace_file(path, ("\n".join(lines) + "\n").encode())
        return identity

    # -- the first start in a cluster

    @property
    def is_first_join(self) -> bool:
        """Whether the broker has none of the logs it may be known for: the directory is new, or a former one."""
        return (self.path / FIRST_JOIN).exists()

    def begin_first_join(self) -> None:
        """Mark a directory that no broker has used before. Call it before `identify`."""
        if not (self.path / META_PROPERTIES).exists():
            self.mark_first_join()

    def mark_first_join(self) -> None:
        """Mark a directory whose logs are not those that the cluster knows. The mark survives crashes."""
        replace_file(self.path / FIRST_JOIN, b"")

    def end_first_join(self) -> None:
        """Remove the mark: the cluster knows that the broker has nothing."""
        (self.path / FIRST_JOIN).unlink(missing_ok=True)

    @property
    def last_incarnation(self) -> int | None:
        """The last incarnation that was about to begin with this directory; None if that is unknown."""
        try:
            return int((self.path / INCARNATION).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def note_incarnation(self, number: int) -> None:
        """Note an incarnation before it begins. So a copy of the directory that was made before can be told apart."""
        replace_file(self.path / INCARNATION, f"{number}\n".encode())

    def last_high_watermark(self, name: TopicPartition) -> int:
        """Return the last known high watermark of a log that is not registered yet; 0 if there is none."""
        return self._found[HIGH_WATERMARKS].get(name, 0)

    def open_log(self, name: TopicPartition, config: LogConfig, topic_id: UUID | None = None) -> Log:
        """Open the log of a partition, or create it."""
        write_checkpoints = None if (self.path / str(name)).exists() else self.forget([name])
        if write_checkpoints is not None:
            write_checkpoints()
        log = self.make_log(name, config, topic_id)
        self.add(log)
        return log

    def make_log(self, name: TopicPartition, config: LogConfig, topic_id: UUID | None = None) -> Log:
        """Open or create a log without registering it. Call `forget` with its name before, and `add` after.

        May run in another thread. If the folder belongs to another topic of the same name, it is renamed first. If the
        topic was taken for deleted, but is back, the log continues with its former folder.
        """
        directory = self.path / str(name)
        if topic_id is not None and self._changes_folder(directory, topic_id):
            return Log(directory, name, config, self.pool, topic_id=topic_id, now_ms=self._clock.now_ms())
        return Log(
            directory,
            name,
            config,
            self.pool,
            recovery_point=self._found[RECOVERY_POINTS].get(name, 0),
            log_start_offset=self._found[LOG_STARTS].get(name, 0),
            first_dirty_offset=self._found[CLEANER_OFFSETS].get(name, 0),
            topic_id=topic_id,
            clean=name in self._closed_sizes and self._closed_sizes[name] == log_size(directory),
            now_ms=self._clock.now_ms(),
        )

    def _changes_folder(self, directory: Path, topic_id: UUID) -> bool:
        """Put the kept folder of a topic in its place, and another topic's aside. Return whether there was either."""
        is_foreign = not belongs_to(directory, topic_id)
        if is_foreign:
            aside = set_aside(directory)
            self.keep(aside)
            logger.warning("%s belongs to a deleted topic of the same name; moved to %s", directory, aside)
        kept = self._kept.pop((directory.name, topic_id), None)
        if kept is None or directory.exists() or not kept.exists():
            return is_foreign
        os.rename(kept, directory)
        logger.warning("%s continues with %s: its topic was gone, and is back", directory, kept.name)
        return True

    def keep(self, aside: Path) -> None:
        """Register a folder that `set_aside` has renamed, for the case that its topic is back. May run in a thread.

        A folder with a shortened name is left out: it could be that of another partition.
        """
        name, topic_id = aside.name.rpartition(".")[0].rpartition(".")[0], read_topic_id(aside)
        if topic_id is not None and len(name) < _LONGEST_WHOLE_NAME:
            self._kept[name, topic_id] = aside
            self._kept_as[aside] = name, topic_id

    def kept_folder(self, log: Log) -> Path | None:
        """Return the folder of a removed log that `make_log` has renamed, because another topic needed its name."""
        return self._kept.get((str(log.name), log.topic_id)) if log.topic_id is not None else None

    def kept_topics(self, asides: Iterable[Path]) -> set[UUID]:
        """Return the ids of the topics of renamed folders, as far as they are known."""
        return {self._kept_as[aside][1] for aside in asides if aside in self._kept_as}

    def give_up(self, asides: Iterable[Path]) -> None:
        """Forget renamed folders, which are about to be deleted. Those that a log has continued with do not exist."""
        for aside in asides:
            key = self._kept_as.pop(aside, None)
            if key is not None and self._kept.get(key) == aside:
                del self._kept[key]

    def add(self, log: Log) -> None:
        self._drop_loaded(log.name)
        self.logs[log.name] = log

    def _drop_loaded(self, name: TopicPartition) -> None:
        for offsets in (self._closed_sizes, *self._found.values()):
            offsets.pop(name, None)

    def forget(self, names: Sequence[TopicPartition]) -> Callable[[], None] | None:
        """Remove deleted logs from the checkpoints. Return a function that writes them, or None if nothing changed.

        Run it before other logs use the same names: after a crash they would get the offsets of the old ones.
        """
        gone = self._checkpointed.intersection(names)
        if not gone:
            return None
        for name in gone:
            self._drop_loaded(name)
        self._checkpointed.clear()
        write = self.checkpoint_writer()

        def write_or_retry_later() -> None:
            try:
                write()
            except OSError:
                self._checkpointed |= gone
                raise

        return write_or_retry_later

    def detach(self, name: TopicPartition) -> Log:
        """Unregister a log immediately. Call `set_log_aside` before another log uses its name."""
        log = self.logs.pop(name)
        log.retire()
        return log

    def remove_log(self, name: TopicPartition) -> Path:
        """Unregister a log and rename its folder. Return the new path, for `delete`, which may run later."""
        aside = set_log_aside(self.detach(name))
        assert aside is not None, f"the folder of {name} belongs to another topic"
        return aside

    def opened(self, offline: Iterable[TopicPartition] = ()) -> None:
        """Note that every existing log is now open or offline. Logs that are opened later are new: nothing to check."""
        self.clean = False
        kept = set(offline)
        for offsets in (self._closed_sizes, *self._found.values()):
            for name in offsets.keys() - kept:
                del offsets[name]

    def leftovers(self, offline: Iterable[TopicPartition] = ()) -> list[Path]:
        """Return folders of deleted topics whose removal was interrupted: logs that are neither open nor offline."""
        names = {str(name) for name in (*self.logs, *offline)}
        return [path for path in self.path.iterdir() if path.name not in names and _is_left_over(path)]

    def set_leftovers_aside(self, offline: Iterable[TopicPartition] = ()) -> list[Path]:
        """Rename the leftovers, which frees their names. Return the new paths. Call it after `opened`."""
        asides = []
        for folder in self.leftovers(offline):
            try:
                aside = folder if folder.suffix == DELETED_SUFFIX else set_aside(folder)
            except OSError as error:
                logger.error("%s cannot be removed now, the next start removes it: %s", folder, error)
                continue
            self.keep(aside)
            asides.append(aside)
        return asides

    def folders_with_data(self) -> list[Path]:
        """Return the folders of unopened logs that contain batches, whether or not their topic exists."""
        return [path for path in self.leftovers() if path.suffix != DELETED_SUFFIX and log_size(path)]

    def checkpoint_writer(self) -> Callable[[], None]:
        """Collect recovery points, start offsets and cleaner offsets. Return a function that writes them and may block.

        These functions may be called from several threads and out of order. An outdated one writes nothing.
        """
        taken = {
            file: self._found[file] | {name: getattr(log, attribute) for name, log in self.logs.items()}
            for file, attribute in CHECKPOINTS.items()
        }
        self._checkpointed |= taken[RECOVERY_POINTS].keys()
        self._checkpoints_taken += 1
        number = self._checkpoints_taken

        def write() -> None:
            with self._checkpointing:
                if number > self._checkpoints_written:
                    for file, offsets in taken.items():
                        write_checkpoint(self.path / file, offsets)
                    self._checkpoints_written = number

        return write

    def close(self) -> None:
        """Stop cleanly: flush every log, then write the clean-shutdown marker. After any failure there is no marker."""
        with ThreadPoolExecutor(CLOSING_THREADS, thread_name_prefix="skylog-close") as threads:
            all_closed = all(list(threads.map(_close_log, self.logs.values())))
        try:
            self.checkpoint_writer()()
            if all_closed:
                sizes = {name: log.size_bytes for name, log in self.logs.items()}
                write_checkpoint(self.path / CLEAN_SHUTDOWN, sizes)
        except OSError as error:
            logger.error("%s could not be closed cleanly; the next start will check it: %s", self.path, error)
        os.close(self._lock)


def _read_identity(path: Path) -> Identity | None:
    """Return the identity in meta.properties, None if there is no such file. Raises SkylogError."""
    if not path.exists():
        return None
    try:
        values = read_properties(path.read_text())
        return Identity(values["cluster.id"], int(values["node.id"]), values.get("directory.id", ""))
    except (KeyError, ValueError, SkylogError) as error:
        raise SkylogError(f"{path} is damaged; restore its cluster.id and node.id: {error}") from error


def _close_log(log: Log) -> bool:
    if log.has_nothing_to_close:
        return True
    log.when_flushed = None  # this is another thread
    try:
        if log.failure is not None:
            raise log.failed()
        task = log.begin_flush()
        task.run()
        log.end_flush(task)
        log.close()
    except (OSError, SkylogError) as error:
        logger.error("%s could not be closed cleanly; the next start will check it: %s", log.name, error)
        return False
    return True


def _is_left_over(path: Path) -> bool:
    """Whether `path` is a folder with nothing but files of a log. Other folders are never removed."""
    if not (_LOG_FOLDER_NAME.fullmatch(path.name) and path.is_dir()):
        return False
    return all(_LOG_FILE_NAME.fullmatch(name) for name in os.listdir(path))


def set_aside(directory: Path) -> Path:
    """Rename the folder of a log that is not in use. Return the new path, for `delete`."""
    # The longest topic name leaves no room for a suffix in a file name.
    aside = directory.with_name(f"{directory.name[:_LONGEST_WHOLE_NAME]}.{uuid.uuid4().hex}{DELETED_SUFFIX}")
    os.rename(directory, aside)
    return aside


def set_log_aside(log: Log) -> Path | None:
    """Rename the folder of a retired log, whose last flush may still be running. Return the new path.

    None if the folder belongs to another topic of the same name by now.
    """
    log.release()
    with log.folder_name.give_up():
        return set_aside(log.directory) if belongs_to(log.directory, log.topic_id) else None


def belongs_to(directory: Path, topic_id: UUID | None) -> bool:
    """Whether the folder of a log belongs to a topic, as far as that is known."""
    return None in (found := {topic_id, read_topic_id(directory)}) or len(found) == 1


def log_size(directory: Path) -> int:
    """Return the size of the segments in `directory`. It differs from the size at a clean stop if they were changed."""
    bases = segment_bases(directory) if directory.is_dir() else []
    return sum(segment_path(directory, base_offset).stat().st_size for base_offset in bases)


def delete(path: Path) -> None:
    """Remove a file or a folder. Blocks on the disk."""
    if path.is_dir():
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            shutil.rmtree(path)  # a cleaner that has just been killed created another file
    else:
        path.unlink(missing_ok=True)


def new_id() -> str:
    """Return a random id of a cluster or directory in Kafka's format: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
