"""The 61-byte header of a v2 record batch, and the checks that do not open the batch.

Layout (big-endian), positions from the start of the batch::

     0  base_offset             int64   assigned by the broker, outside the CRC
     8  batch_length            int32   bytes after this field
    12  partition_leader_epoch  int32   assigned by the broker, outside the CRC
    16  magic                   int8    2
    17  crc                     uint32  CRC-32C of everything from `attributes` to the end
    21  attributes              int16   bits 0-2 codec, 3 log-append time, 4 transactional, 5 control,
                                        6 delete horizon: base_timestamp is the time to delete a marker
    23  last_offset_delta       int32
    27  base_timestamp          int64
    35  max_timestamp           int64
    43  producer_id             int64
    51  producer_epoch          int16
    53  base_sequence           int32
    57  record_count            int32
    61  records, compressed as one block

`base_offset` and `partition_leader_epoch` can be written without changing the CRC. So an append costs the same for one
record and for a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from skylog.errors import SkylogError
from skylog.records.checksum import crc32c
from skylog.records.compression import Codec

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # base_offset and batch_length
CRC_START: Final = 21
SMALLEST_RECORD_BYTES: Final = 7  # seven one-byte fields: the shortest record that can be encoded

_HEADER = Struct(">qiibIhiqqqhii")
_CRC = Struct(">I")
_EPOCH = Struct(">i")
_OFFSET = Struct(">q")
_OFFSET_LENGTH_EPOCH = Struct(">qii")
_ATTRIBUTES = Struct(">h")

CODEC_MASK: Final = 0x07
LAST_CODEC: Final = int(max(Codec))
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40


class InvalidBatchError(SkylogError):
    """Bytes that are not a valid batch. `corrupt` is true for damage (CRC or length), false for an invalid field."""

    def __init__(self, message: str, *, corrupt: bool = False) -> None:
        super().__init__(message)
        self.corrupt = corrupt


class BatchHeader(NamedTuple):
    """The header of one batch. See the module's docstring for the fields."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def read(cls, buffer: Buffer, position: int = 0) -> BatchHeader:
        """Read the header at `position`, where at least `HEADER_BYTES` bytes must be available."""
        return tuple.__new__(cls, _HEADER.unpack_from(buffer, position))

    def pack(self) -> bytes:
        return _HEADER.pack(*self)

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap at 2^31. -1 if the batch has none."""
        return -1 if self.base_sequence < 0 else (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may delete a marker that is of no more use; None if it has not decided that yet (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


# `_HEADER` returns a tuple of the right length, so no further check is needed.
_as_header: Callable[[tuple[int, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Check the batch at `position` as far as possible without opening it, and return its header.

    Raises InvalidBatchError for a batch that is truncated, has another magic, a wrong CRC, or inconsistent counts.
    """
    available = len(buffer) - position
    if available < HEADER_BYTES:
        raise InvalidBatchError(f"{available} bytes are too short for a batch header of {HEADER_BYTES}", corrupt=True)
    fields = _HEADER.unpack_from(buffer, position)
    (_, length, _, magic, crc, attributes, last_offset_delta, _, _, producer_id, _, base_sequence, count) = fields
    size_bytes = length + LOG_OVERHEAD_BYTES
    if magic != MAGIC:
        raise InvalidBatchError(f"batch has magic {magic}, only format {MAGIC} is stored", corrupt=False)
    if not HEADER_BYTES <= size_bytes <= available:
        raise InvalidBatchError(f"batch declares {size_bytes} bytes; {available} are available", corrupt=True)
    actual = crc32c(memoryview(buffer)[position + CRC_START : position + size_bytes])
    if actual != crc:
        raise InvalidBatchError(f"batch has CRC {crc:#010x}, its bytes give {actual:#010x}", corrupt=True)
    # A compacted batch keeps its offset range with fewer or no records, so only the upper bound holds.
    if last_offset_delta < 0 or not 0 <= count <= last_offset_delta + 1:
        raise InvalidBatchError(f"batch declares {count} records in {last_offset_delta + 1} offsets")
    codec = attributes & CODEC_MASK
    if not codec and count * SMALLEST_RECORD_BYTES > size_bytes - HEADER_BYTES:
        raise InvalidBatchError(f"{count} records cannot fit into {size_bytes - HEADER_BYTES} bytes")
    if codec > LAST_CODEC:
        raise InvalidBatchError(f"batch has unknown codec {codec}")
    # Markers have no sequence, nor have the offsets that a group coordinator stores as part of a transaction.
    if producer_id >= 0 and base_sequence < 0 and not attributes & (TRANSACTIONAL | CONTROL):
        raise InvalidBatchError(f"producer {producer_id} sent the sequence number {base_sequence}")
    return _as_header(fields)


def stamp_offset(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the broker's two fields into a whole batch in place. The CRC stays valid: it does not cover them."""
    _OFFSET_LENGTH_EPOCH.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD_BYTES, leader_epoch)


def stamp_epochs(batches: bytearray | memoryview, leader_epoch: int) -> None:
    """Write the leader epoch into every whole batch in place. The CRCs stay valid."""
    position, end = 0, len(batches)
    while end - position >= HEADER_BYTES:
        _EPOCH.pack_into(batches, position + 12, leader_epoch)
        position += LOG_OVERHEAD_BYTES + max(
            0, int.from_bytes(batches[position + 8 : position + 12], "big", signed=True)
        )


def stamp_append_time(batch: bytearray | memoryview, now_ms: int, position: int, size_bytes: int) -> None:
    """Set log-append time in place: the attribute bit, the max timestamp, and the new CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, position + 21)
    _ATTRIBUTES.pack_into(batch, position + 21, attributes | LOG_APPEND_TIME)
    _OFFSET.pack_into(batch, position + 35, now_ms)
    _CRC.pack_into(batch, position + 17, crc32c(memoryview(batch)[position + CRC_START : position + size_bytes]))


def iterate_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch in `buffer`, from headers only, without an incomplete last one."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        header = BatchHeader.read(buffer, position)
        if header.size_bytes < HEADER_BYTES or header.size_bytes > end - position:
            return
        yield position, header
        position += header.size_bytes
