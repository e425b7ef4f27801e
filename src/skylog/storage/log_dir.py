"""A data directory: the logs in it, and what must be known before they can be opened.

    meta.properties                    who this broker is
    recovery-point-offset-checkpoint   how far each log is on disk
    log-start-offset-checkpoint        where each log begins
    cleaner-offset-checkpoint          how far each log is compacted
    clean-shutdown                     there only between a clean stop and the next start; how large each log was
    lock                               held by the broker that uses the directory
    <topic>-<partition>/               one log each; `partition.metadata` in it has the topic's id
    <…>.deleted                        logs of deleted topics, on their way out

The caller decides in which thread things run; nothing here is called from two at once.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import logging
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from skylog.clock import Clock
from skylog.config import read_properties
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.storage.checkpoint import (
    CLEANER_OFFSETS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_checkpoint,
    write_checkpoint,
)
from skylog.storage.config import LogConfig
from skylog.storage.files import FilePool, LogFile, OpenFile, replace_file, sync_directory
from skylog.storage.log import Log
from skylog.storage.partition_metadata import read_topic_id
from skylog.storage.segment import segment_bases, segment_path

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN: Final = "clean-shutdown"
CLOSING_THREADS: Final = 8  # disks like to be asked for many fsyncs at once
DELETED_SUFFIX: Final = ".deleted"
_LOG_FOLDER_NAME = re.compile(r"[a-zA-Z0-9._-]+(-\d+|\.[0-9a-f]{32}\.deleted)")
_LOG_FILE_NAME = re.compile(
    r"(\d{20}\.(log|index|timeindex|snapshot)|leader-epoch-checkpoint|partition\.metadata)(\.deleted|\.tmp)?"
    r"|\d{20}-\d{20}\.swap|cleaning"
)
CHECKPOINTS: Final = {
    RECOVERY_POINTS: "recovery_point",
    LOG_STARTS: "log_start_offset",
    CLEANER_OFFSETS: "first_dirty_offset",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the broker is, for as long as the directory lives."""

    cluster_id: str
    node_id: int


class LogDir:
    """The open data directory. After a clean stop logs are opened without reading them; `clean` tells if it was."""

    def __init__(self, path: Path, clock: Clock, open_file: OpenFile = LogFile) -> None:
        self.path = path.absolute()
        self._clock = clock
        self.pool = FilePool(open_file)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = self._acquire_lock()
        self.logs: dict[TopicPartition, Log] = {}
        self._found = {file: read_checkpoint(self.path / file) for file in CHECKPOINTS}
        self._checkpointing = threading.Lock()
        self._checkpoints_taken = self._checkpoints_written = 0
        self._checkpointed = {name for offsets in self._found.values() for name in offsets}
        marker = self.path / CLEAN_SHUTDOWN
        self.clean = marker.exists()
        self._closed_sizes = read_checkpoint(marker)
        marker.unlink(missing_ok=True)
        sync_directory(self.path)

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

    def identify(self, node_id: int) -> Identity:
        """The identity in meta.properties, made on the first start. Raises if the directory is another broker's."""
        path = self.path / "meta.properties"
        if path.exists():
            try:
                values = read_properties(path.read_text())
                stored = Identity(values["cluster.id"], int(values["node.id"]))
            except (KeyError, ValueError, SkylogError) as error:
                raise SkylogError(f"{path} is damaged, restore its cluster.id and node.id: {error}") from error
            if stored.node_id != node_id:
                raise SkylogError(
                    f"{self.path} belongs to broker {stored.node_id}, this one is configured as {node_id}"
                )
            return stored
        identity = Identity(new_cluster_id(), node_id)
        lines = ["version=1", f"cluster.id={identity.cluster_id}", f"node.id={node_id}"]
        replace_file(path, ("\n".join(lines) + "\n").encode())
        return identity

    def open_log(self, name: TopicPartition, config: LogConfig, topic_id: UUID | None = None) -> Log:
        """Open the log of a partition, or begin it."""
        write_checkpoints = None if (self.path / str(name)).exists() else self.forget([name])
        if write_checkpoints is not None:
            write_checkpoints()
        log = self.make_log(name, config, topic_id)
        self.add(log)
        return log

    def make_log(self, name: TopicPartition, config: LogConfig, topic_id: UUID | None = None) -> Log:
        """Open or begin a log without taking it into use: `forget` its name first, `add` it afterwards.

        May run in another thread. A folder that belongs to another topic of the same name is set aside.
        """
        directory = self.path / str(name)
        if topic_id is not None and read_topic_id(directory) not in (None, topic_id):
            aside = set_aside(directory)
            logger.warning("%s belongs to a deleted topic of the same name; moved to %s", directory, aside)
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

    def add(self, log: Log) -> None:
        self._strike(log.name)
        self.logs[log.name] = log

    def _strike(self, name: TopicPartition) -> None:
        for offsets in (self._closed_sizes, *self._found.values()):
            offsets.pop(name, None)

    def forget(self, names: Sequence[TopicPartition]) -> Callable[[], None] | None:
        """Strike logs that are gone from the checkpoints; what writes the checkpoints, if that is needed.

        It must have run before other logs take their names: a crash would mix them up.
        """
        gone = self._checkpointed.intersection(names)
        if not gone:
            return None
        for name in gone:
            self._strike(name)
        self._checkpointed.clear()
        write = self.checkpoint_writer()

        def write_or_try_again() -> None:
            try:
                write()
            except OSError:
                self._checkpointed |= gone
                raise

        return write_or_try_again

    def detach(self, name: TopicPartition) -> Log:
        """Take a log out of use at once. `set_log_aside` before another log takes its name."""
        log = self.logs.pop(name)
        log.retire()
        return log

    def remove_log(self, name: TopicPartition) -> Path:
        """Take a log out of use and its folder out of the way; `delete` may remove the folder in its own time."""
        return set_log_aside(self.detach(name))

    def opened(self, offline: Iterable[TopicPartition] = ()) -> None:
        """Every log there was is open now, or offline. Others that come are new, and have nothing to check."""
        self.clean = False
        kept = set(offline)
        for offsets in (self._closed_sizes, *self._found.values()):
            for name in offsets.keys() - kept:
                del offsets[name]

    def leftovers(self, offline: Iterable[TopicPartition] = ()) -> list[Path]:
        """Folders of deleted topics, whose removal was cut short: logs that are neither open nor offline."""
        names = {str(name) for name in (*self.logs, *offline)}
        return [path for path in self.path.iterdir() if path.name not in names and _is_left_over(path)]

    def folders_with_data(self) -> list[Path]:
        """Folders of logs with batches in them, whether or not there is a topic for them."""
        return [path for path in self.leftovers() if path.suffix != DELETED_SUFFIX and log_size(path)]

    def checkpoint_writer(self) -> Callable[[], None]:
        """Take down how far the logs are on disk, where they begin, how far they are compacted; writing it may block.

        Calls may come in another order than they were made, from several threads: an older one writes nothing.
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
        """Stop cleanly: everything to disk, then the marker. Where anything fails there is no marker."""
        with ThreadPoolExecutor(CLOSING_THREADS, thread_name_prefix="skylog-close") as threads:
            all_closed = all(list(threads.map(_close_log, self.logs.values())))
        try:
            self.checkpoint_writer()()
            if all_closed:
                sizes = {name: log.size_bytes for name, log in self.logs.items()}
                write_checkpoint(self.path / CLEAN_SHUTDOWN, sizes)
        except OSError as error:
            logger.error("%s could not be closed cleanly, the next start will check it: %s", self.path, error)
        os.close(self._lock)


def _close_log(log: Log) -> bool:
    if log.has_nothing_to_close:
        return True
    try:
        if log.failure is not None:
            raise log.failed()
        task = log.begin_flush()
        task.run()
        log.end_flush(task)
        log.close()
    except (OSError, SkylogError) as error:
        logger.error("%s could not be closed cleanly, the next start will check it: %s", log.name, error)
        return False
    return True


def _is_left_over(path: Path) -> bool:
    """Whether `path` is a folder that only a log can have made: nobody else's is ever removed."""
    if not (_LOG_FOLDER_NAME.fullmatch(path.name) and path.is_dir()):
        return False
    return all(_LOG_FILE_NAME.fullmatch(name) for name in os.listdir(path))


def set_aside(directory: Path) -> Path:
    """Rename the folder of a log that is not in use; `delete` may remove what is at the new path."""
    # The longest topic name leaves no room for more in a file name.
    aside = directory.with_name(f"{directory.name[:200]}.{uuid.uuid4().hex}{DELETED_SUFFIX}")
    os.rename(directory, aside)
    return aside


def set_log_aside(log: Log) -> Path:
    """Rename the folder of a retired log, whose last flush may still be under way."""
    log.release()
    with log.folder_name.give_up():
        return set_aside(log.directory)


def log_size(directory: Path) -> int:
    """Bytes in the segments of the log in `directory`: as at a clean stop, unless they were touched since."""
    bases = segment_bases(directory) if directory.is_dir() else []
    return sum(segment_path(directory, base_offset).stat().st_size for base_offset in bases)


def delete(path: Path) -> None:
    """Remove a file or a folder; blocks for as long as the disk takes."""
    if path.is_dir():
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            shutil.rmtree(path)  # a cleaner that was just killed has made one more file
    else:
        path.unlink(missing_ok=True)


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
