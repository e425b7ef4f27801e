"""What a partition remembers of its idempotent producers, so that a batch that is sent again is stored once.

Per producer id: its epoch and the last five batches (Kafka's clients have at most five in flight). A batch whose
sequence range is among them is a duplicate and answered with the offset it has; the next one must follow the last
without a gap. Sequences wrap at 2^31.

The state is a function of the log: it is rebuilt by reading batch headers. Snapshots `<end offset>.snapshot`, written
when a segment is rolled and at a clean stop, save reading them all. Format: magic "SKPS", version, CRC-32C, then
per producer `(id, epoch, last_timestamp, batch count)` and per batch `(base_sequence, last_sequence, base_offset,
last_offset, timestamp)`.
"""

from __future__ import annotations

import logging
import os
import struct
from collections import deque
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
_VERSION: Final = 1


class StoredBatch(NamedTuple):
    """A batch that is in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer's epoch and its last batches, oldest first."""

    __slots__ = ("batches", "epoch", "last_timestamp")

    def __init__(self, epoch: int, last_timestamp: int) -> None:
        self.epoch = epoch
        self.last_timestamp = last_timestamp
        self.batches: deque[StoredBatch] = deque(maxlen=REMEMBERED_BATCHES)


class ProducerState:
    """The producers of one partition, by id. Used from the thread that appends."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}

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
        last_sequence = header.last_sequence
        for stored in entry.batches:
            if stored.base_sequence == header.base_sequence and stored.last_sequence == last_sequence:
                return stored
        if entry.batches:
            expected = (entry.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
            if header.base_sequence != expected:
                raise _gap(header, expected)
        return None

    def record(self, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that is in the log at `base_offset`."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch, header.max_timestamp)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        if not header.is_control:
            last_offset = base_offset + header.last_offset_delta
            entry.batches.append(
                StoredBatch(header.base_sequence, header.last_sequence, base_offset, last_offset, header.max_timestamp)
            )

    def expire(self, before_ms: int) -> int:
        """Forget producers that have been silent since `before_ms`; how many."""
        silent = [key for key, entry in self._producers.items() if entry.last_timestamp < before_ms]
        for key in silent:
            del self._producers[key]
        return len(silent)

    # -- snapshots

    def save(self, directory: Path, end_offset: int) -> None:
        """Write the state as of `end_offset`. Torn by a crash, it fails its CRC and is not used."""
        body = bytearray()
        for producer_id, entry in self._producers.items():
            body += _PRODUCER.pack(producer_id, entry.epoch, entry.last_timestamp, len(entry.batches))
            for batch in entry.batches:
                body += _BATCH.pack(*batch)
        content = _HEAD.pack(_MAGIC, _VERSION, crc32c(body)) + body
        replace_file(snapshot_path(directory, end_offset), content, durable=False)

    def load(self, path: Path) -> bool:
        """Take over what `path` holds. False, and an empty state, where it is damaged."""
        self._producers.clear()
        try:
            content = path.read_bytes()
            magic, version, checksum = _HEAD.unpack_from(content)
            body = memoryview(content)[_HEAD.size :]
            if magic != _MAGIC or version != _VERSION or crc32c(body) != checksum:
                raise ValueError("checksum or version does not match")
            position = 0
            while position < len(body):
                producer_id, epoch, last_timestamp, count = _PRODUCER.unpack_from(body, position)
                position += _PRODUCER.size
                entry = self._producers[producer_id] = ProducerEntry(epoch, last_timestamp)
                for _ in range(count):
                    entry.batches.append(StoredBatch._make(_BATCH.unpack_from(body, position)))
                    position += _BATCH.size
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
