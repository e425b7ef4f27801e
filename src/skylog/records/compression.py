"""The four codecs of a record batch, with the framing of Kafka's clients.

Decompression is bounded: a few bytes may claim to hold gigabytes, so nothing allocates more than `limit_bytes`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from skylog.errors import SkylogError

Buffer = bytes | bytearray | memoryview

DEFAULT_LIMIT_BYTES: Final = 256 * 1024 * 1024
MAX_ZSTD_LEVEL: Final = 9
"""Higher levels take up to thirty times as long to save a few per cent, and would block the event loop."""

DEFAULT_LZ4_LEVEL: Final = 9
"""Like in Kafka, this level means the fast compressor: three times as fast, for some per cent more bytes."""
FAST_LZ4_LEVEL: Final = 1


class Codec(IntEnum):
    """The codec numbers in the attribute bits; the names are the values of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(SkylogError):
    """A block that cannot be decompressed, or exceeds the limit."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` to a block, by default with the library's default level."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
            return deflate.compress(data) + deflate.flush()
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            # The Java clients reject linked blocks.
            fast = level is None or level == DEFAULT_LZ4_LEVEL
            frame = cramjam.lz4.Compressor(level=FAST_LZ4_LEVEL if fast else level, block_linked=False)
            frame.compress(bytes(data))
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=None if level is None else min(level, MAX_ZSTD_LEVEL)))


def decompress(
    codec: Codec, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES, scratch: bytearray | None = None
) -> bytes:
    """Decompress a block. Raises CompressionError for damage, and for more than `limit_bytes`.

    `scratch` is memory that grows as needed, for a caller that decompresses many blocks.
    """
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return _decompress_gzip(data, limit_bytes)
            case Codec.SNAPPY:
                return _decompress_snappy(data, limit_bytes)
            case Codec.LZ4:
                return _decompress_growing(cramjam.lz4.decompress_into, data, limit_bytes, scratch)
            case Codec.ZSTD:
                return _decompress_growing(cramjam.zstd.decompress_into, data, limit_bytes, scratch)
    except (zlib.error, cramjam.DecompressionError, ValueError, IndexError) as error:
        raise CompressionError(f"{codec.name.lower()} block of {len(data)} bytes cannot be read: {error}") from error


def _too_large(limit_bytes: int) -> CompressionError:
    return CompressionError(f"block decompresses to more than the limit of {limit_bytes} bytes")


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    inflate = zlib.decompressobj(wbits=31)
    out = inflate.decompress(data, limit_bytes + 1)
    if len(out) > limit_bytes:
        raise _too_large(limit_bytes)
    if not inflate.eof:
        raise zlib.error("incomplete stream")
    return out


def _decompress_growing(
    into: Callable[[Buffer, bytearray], int], data: Buffer, limit_bytes: int, scratch: bytearray | None
) -> bytes:
    """Decompress into a buffer that grows eightfold up to the limit: neither codec has a reliable size."""
    size = min(limit_bytes, max(4096, len(data) * 8))
    out = bytearray() if scratch is None else scratch
    while True:
        if len(out) < size:
            out += bytes(size - len(out))
        try:
            written = into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size >= limit_bytes:
                raise _too_large(limit_bytes) from error
            size = min(limit_bytes, size * 8)
        else:
            return bytes(memoryview(out)[:written])


# The Java clients use a stream of snappy blocks; librdkafka and others send one raw block. Both are supported.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_MAX_RATIO: Final = 22  # the best of the format: three bytes that copy sixty-four
_INT32 = Struct(">i")


def _compress_snappy(data: Buffer) -> bytes:
    out = bytearray(_XERIAL_MAGIC + _INT32.pack(1) + _INT32.pack(1))
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block)) + block
    return bytes(out)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(view, limit_bytes)
    out = bytearray()
    position = _XERIAL_HEADER_BYTES
    while position < len(view):
        if len(view) - position < _INT32.size:
            raise ValueError("incomplete block length")
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < length <= len(view) - position:
            raise ValueError(f"block length {length} at byte {position}")
        out += _decompress_raw_snappy(view[position : position + length], limit_bytes - len(out))
        position += length
    return bytes(out)


def _decompress_raw_snappy(block: memoryview, limit_bytes: int) -> bytes:
    claimed_bytes = cramjam.snappy.decompress_raw_len(block)
    if claimed_bytes > limit_bytes:
        raise _too_large(limit_bytes)
    if claimed_bytes > len(block) * _SNAPPY_MAX_RATIO:
        raise ValueError(f"{len(block)} bytes claim to hold {claimed_bytes}")
    return bytes(cramjam.snappy.decompress_raw(block))
