"""What a partition remembers of its idempotent producers, so that a batch that is sent again is stored once.

Per producer id: its epoch and the last five batches (Kafka's clients have at most five in flight). A batch whose
sequence range is among them is a duplicate and answered with the offset it has; the next one must follow the last
without a gap. Sequences wrap at 2^31. A producer is forgotten by when it was last heard, on the broker's clock: the
timestamps of its messages may be of any time.

The state is a function of the log: it is rebuilt by reading batch headers. Snapshots `<end offset>.snapshot`, written
when a segment is rolled and at a clean stop, save reading them all. Format: magic "SKPS", version, CRC-32C, then
per producer `(id, epoch, heard_ms, batch count)` and per batch `(base_sequence, last_sequence, base_offset,
last_offset, timestamp)`. In version 1 the third field was a timestamp of a message, which says nothing of when.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from skylog.errors import ErrorCode, KafkaError
from skylog.records import BatchHeader
from skylog.storage.files import replace_file

logger = logging.getLogger(__name__)

REMEMBERED_BATCHES: Final = 5
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_MAGIC: Final = b"SKPS"
_HEAD = struct.Struct("<4sHI")
_PRODUCER = struct.Struct("<qhqB")
_BATCH = struct.Struct("<iiqqq")
_KEPT_BYTES: Final = (REMEMBERED_BATCHES - 1) * _BATCH.size
_VERSION: Final = 2
_READABLE_VERSIONS: Final = (1, 2)


class StoredBatch(NamedTuple):
    """A batch that is in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer's epoch and its last batches.

    There may be hundreds of thousands of producers, so their batches are kept packed, in the form of a snapshot.
    """

    __slots__ = ("epoch", "heard_ms", "last_sequence", "packed")

    def __init__(self, epoch: int, heard_ms: int) -> None:
        self.epoch = epoch
        self.heard_ms = heard_ms
        self.last_sequence = -1
        self.packed = b""

    @property
    def batches(self) -> list[StoredBatch]:
        """The last batches, oldest first."""
        return [StoredBatch._make(fields) for fields in _BATCH.iter_unpack(self.packed)]

    def add(self, batch: StoredBatch) -> None:
        self.packed = self.packed[-_KEPT_BYTES:] + _BATCH.pack(*batch)
        self.last_sequence = batch.last_sequence

    def restore(self, packed: bytes) -> None:
        self.packed = packed
        self.last_sequence = self.batches[-1].last_sequence if packed else -1


class Snapshot(NamedTuple):
    """A state that is not in its file yet."""

    path: Path
    parts: list[bytes]

    def write(self) -> None:
        """Blocks on the disk. Torn by a crash, the file fails its CRC and is not used."""
        body = b"".join(self.parts)
        replace_file(self.path, _HEAD.pack(_MAGIC, _VERSION, crc32c(body)) + body, durable=False)


class ProducerState:
    """The producers of one partition, by id. Used from the thread that appends."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Each producer's id and entry."""
        return iter(self._producers.items())

    def __len__(self) -> int:
        return len(self._producers)

    def find_duplicate(self, header: BatchHeader) -> StoredBatch | None:
        """The stored batch that `header` repeats, None if it may be appended.

        Raises INVALID_PRODUCER_EPOCH for a fenced producer and OUT_OF_ORDER_SEQUENCE_NUMBER for a gap.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return None  # new, or all its records have been dropped: any sequence may start (KIP-360)
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch has {header.producer_epoch}",
            )
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0:
                raise _gap(header, 0)
            return None
        expected = (entry.last_sequence + 1) & _SEQUENCE_MASK
        if header.base_sequence == expected or not entry.packed:
            return None
        for stored in entry.batches:
            if stored.base_sequence == header.base_sequence and stored.last_sequence == header.last_sequence:
                return stored
        raise _gap(header, expected)

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch that is in the log at `base_offset`, of a producer that is heard at `now_ms`."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.restore(b"")
        entry.heard_ms = now_ms
        if not header.is_control:
            last_offset = base_offset + header.last_offset_delta
            entry.add(
                StoredBatch(header.base_sequence, header.last_sequence, base_offset, last_offset, header.max_timestamp)
            )

    def hear(self, producer_id: int, now_ms: int) -> None:
        """Note that a known producer is still there."""
        self._producers[producer_id].heard_ms = now_ms

    def expire(self, before_ms: int) -> int:
        """Forget producers that have been silent since `before_ms`; how many."""
        silent = [key for key, entry in self._producers.items() if entry.heard_ms < before_ms]
        for key in silent:
            del self._producers[key]
        return len(silent)

    # -- snapshots

    def snapshot(self, directory: Path, end_offset: int) -> Snapshot:
        """The state as of `end_offset`, to be written in another thread."""
        pack, size = _PRODUCER.pack, _BATCH.size
        parts = [
            part
            for producer_id, entry in self._producers.items()
            for part in (pack(producer_id, entry.epoch, entry.heard_ms, len(entry.packed) // size), entry.packed)
        ]
        return Snapshot(snapshot_path(directory, end_offset), parts)

    def load(self, path: Path, now_ms: int) -> bool:
        """Take over what `path` holds. False, and an empty state, where it is damaged."""
        self._producers.clear()
        try:
            content = path.read_bytes()
            magic, version, checksum = _HEAD.unpack_from(content)
            body = memoryview(content)[_HEAD.size :]
            if magic != _MAGIC or version not in _READABLE_VERSIONS or crc32c(body) != checksum:
                raise ValueError("checksum or version does not match")
            position = 0
            while position < len(body):
                producer_id, epoch, heard_ms, count = _PRODUCER.unpack_from(body, position)
                position += _PRODUCER.size
                end = position + count * _BATCH.size
                entry = ProducerEntry(epoch, heard_ms if version == _VERSION else now_ms)
                entry.restore(bytes(body[position:end]))
                self._producers[producer_id] = entry
                position = end
        except (OSError, ValueError, struct.error) as error:
            logger.warning("%s: producer snapshot is not usable and is left out: %s", path, error)
            self._producers.clear()
            return False
        return True


def _gap(header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} was next",
    )


def snapshot_path(directory: Path, end_offset: int) -> Path:
    return directory / f"{end_offset:020d}.snapshot"


def snapshot_offsets(directory: Path) -> list[int]:
    """The end offsets of the snapshots in `directory`, ascending."""
    stems = (name.removesuffix(".snapshot") for name in os.listdir(directory) if name.endswith(".snapshot"))
    return sorted(int(stem) for stem in stems if stem.isdecimal())
