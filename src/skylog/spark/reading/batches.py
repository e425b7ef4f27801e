"""Splits the bytes of a Fetch response into batches, checks their CRCs and decompresses them. Opens no record.

Headers become one numpy table, so a thousand small batches cost about as much as a few large ones. Independent of
sockets, Arrow and Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skylog.model import TopicPartition
from skylog.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LAST_CODEC,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    InvalidBatchError,
)
from skylog.records.checksum import crc32c
from skylog.records.compression import DEFAULT_LIMIT_BYTES, Codec, CompressionError, decompress

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""`skylog.records.BatchHeader` as a numpy type."""

GROUP_BYTES: Final = 64 << 20
"""Payloads are decoded in groups of at most this size. A larger payload is a group by itself."""

_LENGTH: Final = Struct(">i")
_MAGIC_AT: Final = 16
_HEADER_RANGE: Final = np.arange(HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class Payloads:
    """The records of several batches: batch i is `data[starts[i]:ends[i]]`."""

    headers: NDArray[Any]
    data: bytes | bytearray | memoryview
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def cut(fetched: memoryview, partition: TopicPartition) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return headers and positions of the complete batches in `fetched`. The last batch may be incomplete.

    Raises InvalidBatchError for batches of formats 0 and 1, and for an impossible length.
    """
    positions: list[int] = []
    position, available = 0, len(fetched)
    while position + _MAGIC_AT < available:
        if fetched[position + _MAGIC_AT] != MAGIC:
            (offset,) = Struct(">q").unpack_from(fetched, position)
            raise InvalidBatchError(
                f"{partition} has a batch of format {fetched[position + _MAGIC_AT]} at offset {offset}; only format "
                f"{MAGIC} (Kafka 0.11 and later) is supported: copy the topic with an older client"
            )
        if position + HEADER_BYTES > available:
            break
        size_bytes = LOG_OVERHEAD_BYTES + _LENGTH.unpack_from(fetched, position + 8)[0]
        if size_bytes < HEADER_BYTES:
            raise InvalidBatchError(f"{partition} has a batch with an invalid size of {size_bytes} bytes", corrupt=True)
        if position + size_bytes > available:
            break
        positions.append(position)
        position += size_bytes
    at = np.array(positions, dtype=np.int64)
    headers = np.frombuffer(fetched, np.uint8)[at[:, None] + _HEADER_RANGE].view(HEADER)[:, 0]
    return headers, at


def payloads(
    fetched: memoryview, headers: NDArray[Any], positions: NDArray[np.int64], partition: TopicPartition
) -> list[Payloads]:
    """Check and decompress these batches. Return their payloads in groups to decode together."""
    _check(fetched, headers, positions, partition)
    starts = positions + HEADER_BYTES
    ends = positions + LOG_OVERHEAD_BYTES + headers["batch_length"]
    codecs = headers["attributes"] & CODEC_MASK
    if not codecs.any():
        return [Payloads(headers, fetched, starts, ends)]
    groups: list[Payloads] = []
    first, size_bytes, bodies = 0, 0, list[bytes | memoryview]()
    for index, codec in enumerate(codecs.tolist()):
        block = fetched[starts[index] : ends[index]]
        body = _decompress(codec, block, partition, headers, index) if codec else block
        if bodies and size_bytes + len(body) > GROUP_BYTES:
            groups.append(_joined(headers[first:index], bodies))
            first, size_bytes, bodies = index, 0, []
        bodies.append(body)
        size_bytes += len(body)
    groups.append(_joined(headers[first:], bodies))
    return groups


def batches_in_range(headers: NDArray[Any], start_offset: int, end_offset: int) -> NDArray[np.bool_]:
    """Return a mask of the data batches with records between these offsets. Control batches are excluded."""
    first = headers["base_offset"]
    found: NDArray[np.bool_] = (first < end_offset) & (first + headers["last_offset_delta"] >= start_offset)
    found &= (headers["attributes"] & CONTROL == 0) & (headers["record_count"] > 0)
    return found


def _check(fetched: memoryview, headers: NDArray[Any], positions: NDArray[np.int64], partition: TopicPartition) -> None:
    crcs = headers["crc"].tolist()
    starts = (positions + CRC_START).tolist()
    ends = (positions + LOG_OVERHEAD_BYTES + headers["batch_length"]).tolist()
    for index, (crc, start, end) in enumerate(zip(crcs, starts, ends, strict=True)):
        actual = crc32c(fetched[start:end])
        if actual != crc:
            raise InvalidBatchError(
                f"{partition}: the batch at offset {headers['base_offset'][index]} has CRC {crc:#010x}, but the CRC of "
                f"its bytes is {actual:#010x}; check the log with: skylog log verify",
                corrupt=True,
            )


def _decompress(codec: int, body: memoryview, partition: TopicPartition, headers: NDArray[Any], index: int) -> bytes:
    where = f"{partition}: the batch at offset {headers['base_offset'][index]}"
    if codec > LAST_CODEC:
        raise InvalidBatchError(f"{where} has unknown codec {codec}")
    try:
        return decompress(Codec(codec), body, DEFAULT_LIMIT_BYTES)
    except CompressionError as error:
        raise InvalidBatchError(f"{where}: {error}", corrupt=True) from error


def _joined(headers: NDArray[Any], bodies: list[bytes | memoryview]) -> Payloads:
    sizes = np.array([len(body) for body in bodies], dtype=np.int64)
    ends = np.cumsum(sizes)
    return Payloads(headers, bodies[0] if len(bodies) == 1 else b"".join(bodies), ends - sizes, ends)
