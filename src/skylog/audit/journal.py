"""A producer's counts in a memory-mapped file, which survives a crash of the process.

Owns the file: its format, its lock, and the steps from a count to a report that is known to be published. Knows nothing
of producers or of how reports are sent.

A journal is an array of slots; a slot counts one topic in one window. Its totals only grow, even when it is assigned to
another window later. Two banks in it hold earlier values of the totals, and one number, the state, defines their
meaning:

    state 2n      bank n % 2 holds the published totals. No report is in flight.
    state 2n + 1  "sealed": the other bank minus that one is the report in flight, and `2n + 1` is part of its id.

* `seal` copies the totals into the free bank, then makes the state odd. A crash before the second step: the state is
  even, nothing was published, and the free bank is overwritten.
* The report is published. A crash before, during or after that: the state is odd, so the process that finds the file
  publishes the same counts with the same id, which count once.
* `confirm`, called when the report is stored, makes the state even. A crash after it: that part is complete.

Each step is one store of eight bytes, so a killed process leaves the state before it or after it. Messages without a
result, `sent` minus all others, are reported as uncertain when the journal is settled. Only the bytes of the one
message that was being counted may be missing. A crash of the machine may lose the file's last seconds.
"""

from __future__ import annotations

import logging
import mmap
import os
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from skylog.audit.report import Count
from skylog.errors import SkylogError
from skylog.model import MAX_TOPIC_NAME_LENGTH

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

SUFFIX: Final = ".journal"
_CLOEXEC: Final[int] = getattr(os, "O_CLOEXEC", 0)
MAX_APPLICATION_BYTES: Final = 1024
EXTENT_BYTES: Final = 65536  # the file grows by this; a multiple of the page size on every platform
SLOT_BYTES: Final = 512
HEADER_BYTES: Final = 4096

_MAGIC: Final = 0x534B59_4155444954  # "SKYAUDIT"; differs on a machine with another byte order
_VERSION: Final = 1
_ID: Final = slice(32, 48)
_APPLICATION_AT: Final = 64
_TOPIC_AT: Final = 128
_CELL_BYTES: Final = 8

# The cells of a slot. Those of the header are: magic, version, window_ms, length of the application's name.
START_MS: Final = 0
STATE: Final = 1
SENT: Final = 2
FAILED: Final = 3
ACKNOWLEDGED: Final = 4
SIZE_BYTES: Final = 5
UNCERTAIN: Final = 6
_BANKS: Final = (7, 10)
_TOPIC_BYTES: Final = 13

Totals = tuple[int, int, int]
"""Acknowledged messages, their bytes, uncertain messages."""


class JournalError(SkylogError):
    """A file that is not a journal, or one of another version."""


class Slot:
    """The counts of `topic` for times in [start_ms, end_ms). `cells` are in the file: counting is `cells[SENT] += 1`.

    Several threads may count `SENT`: CPython with its global lock does not switch threads between the load and the
    store of such a line. All other cells belong to one thread at a time.
    """

    __slots__ = ("cells", "end_ms", "name", "start_ms", "topic")

    def __init__(self, name: str, memory: memoryview) -> None:
        self.name = name
        self.cells = memory.cast("q")
        self.topic = ""
        self.start_ms = self.end_ms = 0

    def assign(self, topic: str, start_ms: int, end_ms: int) -> None:
        """Count for another topic or window from now on. All counts in the slot must be published."""
        encoded = topic.encode()[:MAX_TOPIC_NAME_LENGTH]  # a longer name is invalid: nothing will be stored there
        self.cells.cast("B")[_TOPIC_AT : _TOPIC_AT + len(encoded)] = encoded
        self.cells[_TOPIC_BYTES] = len(encoded)
        self.cells[START_MS] = start_ms
        self.topic, self.start_ms, self.end_ms = topic, start_ms, end_ms

    def restore(self, window_ms: int) -> None:
        """Read topic and window from the file. Raises JournalError if they are invalid."""
        length = self.cells[_TOPIC_BYTES]
        if not 0 <= length <= MAX_TOPIC_NAME_LENGTH:
            raise JournalError(f"slot {self.name} of a journal has a topic of {length} bytes")
        self.topic = str(self.cells.cast("B")[_TOPIC_AT : _TOPIC_AT + length], "utf-8", "replace")
        self.start_ms = self.cells[START_MS]
        self.end_ms = self.start_ms + window_ms

    @property
    def in_flight(self) -> int:
        cells = self.cells
        return cells[SENT] - cells[ACKNOWLEDGED] - cells[FAILED] - cells[UNCERTAIN]

    @property
    def is_sealed(self) -> bool:
        return bool(self.cells[STATE] & 1)

    @property
    def report_id(self) -> str:
        """The id of the sealed report, unique among all slots, journals and reports."""
        return f"{self.name}-{self.cells[STATE]}"

    @property
    def sealed_count(self) -> Count:
        sealed, published = self._bank(1), self._bank(0)
        messages, size_bytes, uncertain = (new - old for new, old in zip(sealed, published, strict=True))
        return Count(self.start_ms, self.end_ms, messages, size_bytes, uncertain)

    def seal(self, *, settled: bool = False) -> bool:
        """Seal unpublished counts into a report, unless one is sealed already; return whether one is sealed.

        `settled` means that counting has ended: messages in flight become uncertain.
        """
        cells = self.cells
        if self.is_sealed:
            return True
        uncertain = cells[UNCERTAIN] + (max(self.in_flight, 0) if settled else 0)
        totals = (cells[ACKNOWLEDGED], cells[SIZE_BYTES], uncertain)
        if totals == self._bank(0):
            return False
        at = self._bank_at(1)
        cells[at], cells[at + 1], cells[at + 2] = totals
        cells[STATE] += 1
        return True

    def confirm(self) -> None:
        """Mark the sealed report as stored."""
        self.cells[STATE] += 1

    def _bank(self, ahead: int) -> Totals:
        at = self._bank_at(ahead)
        return self.cells[at], self.cells[at + 1], self.cells[at + 2]

    def _bank_at(self, ahead: int) -> int:
        return _BANKS[(self.cells[STATE] // 2 + ahead) % 2]


class Journal:
    """The slots of one producer. The file is locked while a process uses it; a process that dies releases the lock.

    File: a header of 4096 bytes with magic, version, window length, a random id and the application's name; then slots
    of 512 bytes each, in the machine's byte order.

    If the disk is full, further slots are kept only in memory, and a warning is logged.
    """

    def __init__(self, journal_id: str, application: str, window_ms: int, path: Path | None, lock_fd: int) -> None:
        self.id = journal_id
        self.application = application
        self.window_ms = window_ms
        self._path = path
        self._lock_fd = lock_fd
        self._extents = 0
        self._unused: Iterator[Slot] = iter(())
        _open_journals.add(self)

    def __del__(self) -> None:
        self.release()

    @classmethod
    def create(cls, directory: Path, application: str, window_ms: int) -> Journal:
        """Create a journal in `directory`, which is created too; in memory, with a warning, if that fails."""
        journal_id = uuid.uuid4()
        path = directory / f"{journal_id.hex}{SUFFIX}"
        lock_fd = -1
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _CLOEXEC, 0o600)
            # A process that searches for orphans may hold the lock of the empty file for a moment.
            _lock(lock_fd)
            header = _map_extent(path, lock_fd, 0, grow=True)[:HEADER_BYTES]
        except OSError as error:
            logger.warning("%s: counts are kept in memory and lost if this process is killed: %s", path, error)
            if lock_fd >= 0:
                os.close(lock_fd)
                path.unlink(missing_ok=True)
            return cls(journal_id.hex, application, window_ms, None, -1)
        name = application.encode()
        header[_ID] = journal_id.bytes
        header[_APPLICATION_AT : _APPLICATION_AT + len(name)] = name
        cells = header.cast("q")
        cells[1], cells[2], cells[3] = _VERSION, window_ms, len(name)
        cells[0] = _MAGIC
        return cls(journal_id.hex, application, window_ms, path, lock_fd)

    @classmethod
    def adopt(cls, path: Path, application: str) -> Journal | None:
        """Take over the journal of a dead process of `application`; None if it is in use or of another application.

        Raises JournalError for a file that is not a journal of this version, OSError if it cannot be read.
        """
        lock_fd = os.open(path, os.O_RDWR | _CLOEXEC)
        try:
            header = memoryview(os.pread(lock_fd, HEADER_BYTES, 0))
            journal = None
            # A blank header is about to be written, or its process died before it counted anything.
            if any(header[:_CELL_BYTES]) and _application(path, header) == application and _is_free(path, lock_fd):
                journal = cls(bytes(header[_ID]).hex(), application, header.cast("q")[2], path, lock_fd)
        except BaseException:
            os.close(lock_fd)
            raise
        if journal is None:
            os.close(lock_fd)
        return journal

    def take(self) -> Slot:
        """Return a slot that has never been used."""
        slot = next(self._unused, None)
        while slot is None:
            self._unused = self._slots_of(self._extents, self._next_extent())
            self._extents += 1
            slot = next(self._unused, None)
        return slot

    def slots(self) -> list[Slot]:
        """Return the used slots of the file. Raises OSError, and JournalError for damage."""
        assert self._path is not None
        used = []
        for number in range(os.fstat(self._lock_fd).st_size // EXTENT_BYTES):
            for slot in self._slots_of(number, _map_extent(self._path, self._lock_fd, number, grow=False)):
                slot.restore(self.window_ms)
                if slot.topic:
                    used.append(slot)
        return used

    def remove(self) -> None:
        """Delete the file, after all of it is published."""
        if self._path is not None and self._lock_fd >= 0:
            self._path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Release the lock of the file, if it still exists."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _next_extent(self) -> memoryview:
        if self._path is not None:
            try:
                return _map_extent(self._path, self._lock_fd, self._extents, grow=True)
            except OSError as error:
                logger.warning("%s: further counts are lost if this process is killed: %s", self._path, error)
        return memoryview(bytearray(EXTENT_BYTES))

    def _slots_of(self, extent: int, memory: memoryview) -> Iterator[Slot]:
        for at in range(0 if extent else HEADER_BYTES, EXTENT_BYTES, SLOT_BYTES):
            yield Slot(f"{self.id}-{(extent * EXTENT_BYTES + at) // SLOT_BYTES}", memory[at : at + SLOT_BYTES])


_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _release_in_child() -> None:
    """Release the parent's journals in a forked child, which has journals of its own."""
    for journal in list(_open_journals):
        journal.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_release_in_child)


def _map_extent(path: Path, lock_fd: int, number: int, *, grow: bool) -> memoryview:
    """Map an extent of the file. With `grow`, its blocks are allocated, so that later stores cannot fail."""
    if grow:
        size_bytes = os.fstat(lock_fd).st_size
        try:
            _allocate(lock_fd, number * EXTENT_BYTES, EXTENT_BYTES)
        except OSError:
            os.ftruncate(lock_fd, size_bytes)
            raise
    # The mapping keeps a descriptor. It must not be a duplicate of the lock's, or a forked child would hold the lock.
    fd = os.open(path, os.O_RDWR | _CLOEXEC)
    try:
        return memoryview(mmap.mmap(fd, EXTENT_BYTES, offset=number * EXTENT_BYTES))
    finally:
        os.close(fd)


def _write_zeros(fd: int, position: int, length: int) -> None:
    os.pwrite(fd, bytes(length), position)


_allocate: Final[Callable[[int, int, int], None]] = getattr(os, "posix_fallocate", _write_zeros)  # not on macOS


def _application(path: Path, header: memoryview) -> str:
    if len(header) < HEADER_BYTES:
        raise JournalError(f"{path} is too short for a journal; delete it if you do not need it")
    magic, version, window_ms, length = header.cast("q")[:4]
    if magic != _MAGIC or version != _VERSION or window_ms <= 0 or not 0 < length <= MAX_APPLICATION_BYTES:
        raise JournalError(f"{path} is not a journal of this version; delete it if you do not need it")
    return str(header[_APPLICATION_AT : _APPLICATION_AT + length], "utf-8", "replace")


def _lock(fd: int, *, wait: bool = True) -> None:
    """Lock a file for this process. Raises BlockingIOError without `wait`, and OSError on Windows."""
    if fcntl is None:
        raise OSError("this platform has no file locks that a journal can use")
    fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_free(path: Path, lock_fd: int) -> bool:
    """Lock the file; returns False if a live process uses it, or if it was settled meanwhile."""
    try:
        _lock(lock_fd, wait=False)
        return path.stat().st_ino == os.fstat(lock_fd).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
