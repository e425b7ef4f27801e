"""Finds the first record of a batch at or after a time, without creating objects for the records before it."""

from __future__ import annotations

from skylog.records.batch import BatchHeader, Buffer, InvalidBatchError
from skylog.records.compression import DEFAULT_LIMIT_BYTES
from skylog.records.retain import open_block, read_varint


def first_since(
    batch: Buffer, timestamp: int, first_offset: int, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> tuple[int, int] | None:
    """Return timestamp and offset of the first record at or after both; None if the batch has none.

    Raises CompressionError or InvalidBatchError if the block does not match the header.
    """
    header = BatchHeader.read(batch)
    block = open_block(batch, header, limit_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    least_delta = timestamp - header.base_timestamp
    position, size = 0, len(block)
    try:
        for _ in range(header.record_count):
            length, position = read_varint(block, position)
            end = position + length
            if length < 0 or end > size:
                raise InvalidBatchError(f"a record of {length} bytes at byte {position} exceeds its batch")
            delta, position = read_varint(block, position + 1)
            if append_time is not None or delta >= least_delta:
                offset = header.base_offset + read_varint(block, position)[0]
                found = header.base_timestamp + delta if append_time is None else append_time
                if offset >= first_offset and found >= timestamp:
                    return found, offset
            position = end
    except IndexError as error:
        raise InvalidBatchError(f"the records of the batch at offset {header.base_offset} are damaged") from error
    return None
