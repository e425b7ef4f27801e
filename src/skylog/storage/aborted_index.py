"""The aborted transactions of a segment: those whose marker is in it.

A read_committed consumer gets every batch below the last stable offset, and the list of aborted transactions among
them, whose batches it drops.

The entries of the active segment are in memory. When a segment is closed, they are written to `.txnindex`, in Kafka's
format: per transaction `(version int16 0, producer_id, first_offset, last_offset, last_stable_offset)`, big-endian. The
file ends with a seal like those of the other indexes: the size of the log file, and "SKIX" with the CRC-32C of
everything before. A segment without aborted transactions has no such file. The seal of its `.index` says whether there
must be one, so a missing file is noticed. `recovery` rebuilds the entries of a file that is missing or damaged.
"""

from __future__ import annotations

import logging
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from skylog.records.checksum import crc32c
from skylog.storage.files import LogFile, OpenFile

logger = logging.getLogger(__name__)

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size
_SEAL: Final = struct.Struct("<qI4s")
_MAGIC: Final = b"XIKS"  # "SKIX" as the upper half of a little-endian integer
_WIDTH: Final = 4
_LAST: Final = 2


class AbortedTransaction(NamedTuple):
    """An aborted transaction, from its first batch to its marker.

    All transactions that begin before `last_stable_offset` have ended when this one is aborted. So the transactions
    that are aborted later begin there or after it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Knowledge(Enum):
    """Whether the entries are those of the log: certainly, as far as one can see, or not."""

    KNOWN = 1
    ASSUMED = 2
    LOST = 3


class AbortedIndex:
    """The aborted transactions of one segment, in the order of their markers. Used by its segment."""

    __slots__ = ("_numbers", "_open_file", "_path", "knowledge")

    def __init__(self, path: Path, open_file: OpenFile = LogFile) -> None:
        self._path = path
        self._open_file = open_file
        self._numbers = array("q")  # four per entry
        self.knowledge = Knowledge.KNOWN

    def __len__(self) -> int:
        return len(self._numbers) // _WIDTH

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self._entries(0)

    def _entries(self, index: int) -> Iterator[AbortedTransaction]:
        numbers = self._numbers
        for start in range(index * _WIDTH, len(numbers), _WIDTH):
            yield AbortedTransaction._make(numbers[start : start + _WIDTH])

    def _index_of(self, offset: int) -> int:
        """Return the number of entries whose marker is before `offset`."""
        return bisect_left(memoryview(self._numbers)[_LAST::_WIDTH], offset)

    def append(self, aborted: AbortedTransaction) -> None:
        self._numbers.extend(aborted)

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """Take over `entries`, which are those of the log."""
        self._numbers = array("q", (number for entry in entries for number in entry))
        self.knowledge = Knowledge.KNOWN

    def since(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yield the transactions whose marker is at `offset` or later."""
        return self._entries(self._index_of(offset)) if self._numbers else iter(())

    def truncate_to(self, end_offset: int) -> None:
        """Forget the transactions whose marker is at `end_offset` or later. The file is left as it is."""
        del self._numbers[self._index_of(end_offset) * _WIDTH :]

    def pack(self) -> bytes:
        """Return the entries for `unpack_aborted`, in another process of this machine."""
        return self._numbers.tobytes()

    # -- the file

    def load(self, *, is_expected: bool) -> None:
        """Read the file. `is_expected` says that there must be one."""
        try:
            self.replace(read_aborted(self._path)[0])
        except FileNotFoundError:
            self.knowledge = Knowledge.LOST if is_expected else Knowledge.ASSUMED
        except (OSError, ValueError) as error:
            logger.warning("%s: ignoring a damaged index of aborted transactions: %s", self._path, error)
            self.knowledge = Knowledge.LOST
        if self.knowledge is Knowledge.LOST:
            self._numbers = array("q")

    def write(self, size_bytes: int) -> None:
        """Write the file for a log file of `size_bytes`, or remove it if there are no entries. Raises OSError."""
        if not self._numbers:
            self.remove()
            return
        body = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self)
        file = self._open_file(self._path, True)
        file.truncate(0)
        file.append(body + _SEAL.pack(size_bytes, _checksum(body, size_bytes), _MAGIC))

    def remove(self) -> None:
        """Remove the file. The entries stay in memory."""
        self._path.unlink(missing_ok=True)


def read_aborted(path: Path) -> tuple[list[AbortedTransaction], int]:
    """Return the entries of a file, and the size of the log file that it is for.

    Raises OSError, and ValueError if the file is damaged.
    """
    content = path.read_bytes()
    body = memoryview(content)[: -_SEAL.size]
    if len(content) < _SEAL.size or len(body) % ENTRY_BYTES:
        raise ValueError(f"a file of {len(content)} bytes does not hold whole entries and a seal")
    size_bytes, checksum, magic = _SEAL.unpack_from(content, len(body))
    if magic != _MAGIC or _checksum(body, size_bytes) != checksum:
        raise ValueError("the seal does not match the entries")
    return [AbortedTransaction._make(fields[1:]) for fields in _ENTRY.iter_unpack(body)], size_bytes


def unpack_aborted(packed: bytes) -> Iterator[AbortedTransaction]:
    """Yield the entries of one or several indexes."""
    numbers = memoryview(packed).cast("q")
    for start in range(0, len(numbers), _WIDTH):
        yield AbortedTransaction._make(numbers[start : start + _WIDTH])


def _checksum(body: bytes | memoryview, size_bytes: int) -> int:
    return crc32c(size_bytes.to_bytes(8, "little"), crc32c(body))
