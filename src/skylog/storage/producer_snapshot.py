"""Snapshots of the producer state, `<end offset>.snapshot`: written when a segment is rolled and at a clean stop.

Format, little-endian: magic "SKPS", version, CRC-32C of the rest. Then the ended transactions whose marker is not
replicated: their number and per transaction `(first_offset, marker_offset)`. Then per producer `(id, epoch,
last_seen_ms, marker_timestamp, coordinator_epoch, transaction_start, batch count)`, and per batch `(base_sequence,
last_sequence, base_offset, last_offset, timestamp)`.

Versions 1 and 2 are of before there were transactions. They have per producer `(id, epoch, last_seen_ms, batch count)`.
In version 1 the third field was a message timestamp, which is not used.
"""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from skylog.durable_files import replace_file
from skylog.records.checksum import crc32c
from skylog.storage.producer_state import BATCH, ProducerEntry, ProducerState

logger = logging.getLogger(__name__)

_MAGIC: Final = b"SKPS"
_VERSION: Final = 3
_HEAD = struct.Struct("<4sHI")
_COUNT = struct.Struct("<I")
_ENDED = struct.Struct("<qq")
_PRODUCER = struct.Struct("<qhqqiqB")
_PRODUCER_1 = struct.Struct("<qhqB")


class Snapshot(NamedTuple):
    """A snapshot that has not been written to its file yet."""

    path: Path
    parts: list[bytes]
    end_offset: int

    def write(self) -> None:
        """Write the file. Blocks on the disk. If a crash tears the file, its CRC does not match and it is ignored."""
        body = b"".join(self.parts)
        replace_file(self.path, _HEAD.pack(_MAGIC, _VERSION, crc32c(body)) + body, durable=False)


def take_snapshot(producers: ProducerState, directory: Path, end_offset: int) -> Snapshot:
    """Return a snapshot of the state at `end_offset`, which another thread may write."""
    ended = producers.transactions.ended
    pack, size = _PRODUCER.pack, BATCH.size
    parts = [_COUNT.pack(len(ended)), *(_ENDED.pack(*offsets) for offsets in ended)]
    parts += [
        part
        for producer_id, entry in producers
        for part in (
            pack(
                producer_id,
                entry.epoch,
                entry.last_seen_ms,
                entry.marker_timestamp,
                entry.coordinator_epoch,
                entry.transaction_start,
                len(entry.packed) // size,
            ),
            entry.packed,
        )
    ]
    return Snapshot(snapshot_path(directory, end_offset), parts, end_offset)


def load_snapshot(path: Path, now_ms: int) -> ProducerState | None:
    """Return the state in the snapshot at `path`; None if it is damaged."""
    try:
        content = path.read_bytes()
        magic, version, checksum = _HEAD.unpack_from(content)
        body = memoryview(content)[_HEAD.size :]
        if magic != _MAGIC or version not in (1, 2, _VERSION) or crc32c(body) != checksum:
            raise ValueError("checksum or version does not match")
        producers = ProducerState()
        if version < _VERSION:
            producers.replace(_read_producers_1(body, now_ms if version == 1 else None), [])
        else:
            (count,) = _COUNT.unpack_from(body)
            start = _COUNT.size + count * _ENDED.size
            producers.replace(_read_producers(body[start:]), list(_ENDED.iter_unpack(body[_COUNT.size : start])))
        return producers
    except (OSError, ValueError, struct.error) as error:
        logger.warning("%s: ignoring a damaged producer snapshot: %s", path, error)
        return None


def _read_producers(body: memoryview) -> dict[int, ProducerEntry]:
    producers: dict[int, ProducerEntry] = {}
    position = 0
    while position < len(body):
        producer_id, epoch, seen, marker_ms, coordinator_epoch, start, count = _PRODUCER.unpack_from(body, position)
        position += _PRODUCER.size
        end = position + count * BATCH.size
        entry = producers[producer_id] = ProducerEntry(epoch, seen)
        entry.restore(bytes(body[position:end]))
        entry.marker_timestamp = marker_ms
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_start = start
        position = end
    return producers


def _read_producers_1(body: memoryview, seen_ms: int | None) -> dict[int, ProducerEntry]:
    """Read the producers of versions 1 and 2. They were last seen at `seen_ms`, if that is given."""
    producers: dict[int, ProducerEntry] = {}
    position = 0
    while position < len(body):
        producer_id, epoch, last_seen_ms, count = _PRODUCER_1.unpack_from(body, position)
        position += _PRODUCER_1.size
        end = position + count * BATCH.size
        entry = producers[producer_id] = ProducerEntry(epoch, last_seen_ms if seen_ms is None else seen_ms)
        entry.restore(bytes(body[position:end]))
        position = end
    return producers


def snapshot_path(directory: Path, end_offset: int) -> Path:
    return directory / f"{end_offset:020d}.snapshot"


def snapshot_offsets(directory: Path) -> list[int]:
    """Return the end offsets of the snapshots in `directory`, ascending."""
    stems = (name.removesuffix(".snapshot") for name in os.listdir(directory) if name.endswith(".snapshot"))
    return sorted(int(stem) for stem in stems if stem.isdecimal())
