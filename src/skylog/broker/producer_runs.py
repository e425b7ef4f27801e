"""Runs of produce requests that differ only in their batches: found, checked, stamped and answered in one pass.

This is all byte work. It is done by `_producer_runs.c` if that was compiled when skylog was installed, and by
`take_run_in_python` otherwise; both return the same. `SKYLOG_PURE=1` chooses Python, and `skylog --version` names the
one in use. Partitions, rights and files are the business of the caller.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import Final

from skylog.records.batch import CRC_START, HEADER_BYTES, LAST_CODEC, LOG_OVERHEAD_BYTES, MAGIC, SMALLEST_RECORD_BYTES
from skylog.records.checksum import crc32c

MAX_RUN: Final = 32
COMPILED_BYTES: Final = 16 * 1024
"""The largest batch that the compiled form takes: it copies batches, which larger ones should be spared."""

FLEXIBLE_FROM: Final = 9
TAIL_BYTES: Final = 3  # of a flexible request: no tags of the partition, of the topic, of the request
_MAX_VARINT_BYTES: Final = 4
_KEY_AT: Final = 12  # after length, API key, version and correlation id
_REQUEST: Final = struct.Struct(">iii")
_LENGTH: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_BATCH: Final = struct.Struct(">qiibIhiqqqhii")
_STAMP: Final = struct.Struct(">qii")

Row = tuple[int, int, int]
"""A batch: its length, its base offset, and its largest timestamp."""

Run = tuple[int, Sequence[bytes | memoryview], int, list[Row], int, bytes]
"""The position after the run, the batches to write and their length, a row for each, the next offset, the answers."""

TakeRun = Callable[[memoryview, int, int, int, bytes, bytes, int, int, int, int, int], Run | None]


def take_run_in_python(
    view: memoryview,
    position: int,
    end: int,
    version: int,
    key: bytes,
    form: bytes,
    offset_at: int,
    offset: int,
    epoch: int,
    start_offset: int,
    max_bytes: int,
) -> Run | None:
    """Take the requests from `position` on that have this version and key, up to the first that is not ordinary.

    `key` is what follows the correlation id, up to the size of the batch. Ordinary batches are valid, have at most
    `max_bytes`, and neither a producer id nor an attribute except a codec. They get offsets from `offset` on, and
    `epoch`. `form` is the answer, in which correlation id, offset and start offset are filled in. Return None if the
    first request is not ordinary.
    """
    batches: list[memoryview] = []
    rows: list[Row] = []
    answers: list[bytes] = []
    total = 0
    key_bytes = len(key)
    head, middle, tail = form[:4], form[8:offset_at], form[offset_at + 24 :]
    middle_tail = form[offset_at + 8 : offset_at + 16]
    while end - position >= _KEY_AT + key_bytes + 4 and len(rows) < MAX_RUN:
        length, api_version, correlation_id = _REQUEST.unpack_from(view, position)
        at = position + _KEY_AT + key_bytes
        stop = position + 4 + length
        if api_version != version or stop > end or stop < at + 4 or bytes(view[position + _KEY_AT : at]) != key:
            break
        if version >= FLEXIBLE_FROM:
            size, at = _varint(view, at, stop)
            batch_end = stop - TAIL_BYTES
            if batch_end < at or any(view[batch_end:stop]):
                break
            size -= 1
        else:
            (size,) = _LENGTH.unpack_from(view, at)
            at += 4
            batch_end = stop
        if size != batch_end - at or not HEADER_BYTES <= size <= max_bytes:
            break
        (_, inner, _, magic, crc, attributes, last, _, timestamp, producer, _, _, records) = _BATCH.unpack_from(
            view, at
        )
        if (
            inner + LOG_OVERHEAD_BYTES != size
            or magic != MAGIC
            or not 0 <= attributes <= LAST_CODEC
            or records != last + 1
            or last < 0
            or producer >= 0
            or (not attributes and records * SMALLEST_RECORD_BYTES > size - HEADER_BYTES)
            or crc32c(view[at + CRC_START : batch_end]) != crc
        ):
            break
        _STAMP.pack_into(view, at, offset, inner, epoch)
        batches.append(view[at:batch_end])
        rows.append((size, offset, timestamp))
        total += size
        answers += (head, _LENGTH.pack(correlation_id), middle, _OFFSET.pack(offset), middle_tail)
        answers += (_OFFSET.pack(start_offset), tail)
        offset += records
        position = stop
    return (position, batches, total, rows, offset, b"".join(answers)) if rows else None


def _varint(view: memoryview, at: int, stop: int) -> tuple[int, int]:
    """Return the varint at `at` and the position after it; a position after `stop` if it is too long."""
    value = 0
    for index in range(min(_MAX_VARINT_BYTES, stop - at)):
        byte = view[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    return 0, stop + 1


def load_compiled() -> TakeRun | None:
    """Return the compiled form; None if there is none, or Python was asked for."""
    if os.environ.get("SKYLOG_PURE", "") not in ("", "0"):
        return None
    try:
        from skylog.broker._producer_runs import take_run
    except ImportError:  # not compiled, or for another processor
        return None
    return take_run


compiled: Final = load_compiled()
