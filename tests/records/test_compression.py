"""The four codecs and their framings, and blocks that claim to be more than they are."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.records import Codec
from skylog.records.compression import CompressionError, compress, decompress

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
DATA = b"the same words again and again, " * 5000  # 160 kB, several snappy blocks
MB = 1024 * 1024


@given(st.binary(max_size=2000), st.sampled_from(list(Codec)))
def test_what_is_compressed_is_decompressed(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_large_blocks_and_any_kind_of_buffer_are_read(codec: Codec) -> None:
    block = compress(codec, memoryview(DATA))
    assert len(block) < len(DATA) / 10
    for buffer in (block, bytearray(block), memoryview(block)):
        assert decompress(codec, buffer) == DATA


def test_snappy_is_written_in_the_frames_of_java_clients_and_read_raw_too() -> None:
    framed = compress(Codec.SNAPPY, DATA)
    assert framed.startswith(b"\x82SNAPPY\x00")
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(DATA))) == DATA


def test_gzip_of_the_standard_library_is_read_and_can_read_ours() -> None:
    assert decompress(Codec.GZIP, gzip.compress(DATA)) == DATA
    assert gzip.decompress(compress(Codec.GZIP, DATA)) == DATA


def test_lz4_and_zstd_frames_without_their_size_are_read() -> None:
    for module, codec in ((cramjam.lz4, Codec.LZ4), (cramjam.zstd, Codec.ZSTD)):
        stream = module.Compressor()
        for start in range(0, len(DATA), 10_000):
            stream.compress(DATA[start : start + 10_000])
        assert decompress(codec, bytes(stream.finish())) == DATA


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_the_largest_that_passes(codec: Codec) -> None:
    block = compress(codec, DATA)
    assert decompress(codec, block, len(DATA)) == DATA
    with pytest.raises(CompressionError):
        decompress(codec, block, len(DATA) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_little_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MB))
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(codec, bomb, 2 * MB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 * MB


def test_a_small_snappy_block_that_claims_gigabytes_is_refused_before_memory_is_taken() -> None:
    claim = b"\xff\xff\xff\xff\x07" + b"\x00a"  # a length of two gigabytes, then one literal byte
    with pytest.raises(CompressionError, match="claim"):
        decompress(Codec.SNAPPY, claim, 4 << 30)


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_and_cut_blocks_raise_the_declared_error(codec: Codec) -> None:
    block = compress(codec, DATA)
    for length in (0, 1, len(block) // 2, len(block) - 1):
        if codec is Codec.SNAPPY and length == 0:
            continue
        with pytest.raises(CompressionError):
            decompress(codec, block[:length])


@given(st.binary(max_size=300), st.sampled_from(CODECS))
def test_any_bytes_decompress_or_raise_the_declared_error(data: bytes, codec: Codec) -> None:
    with contextlib.suppress(CompressionError):
        decompress(codec, data, MB)


@given(st.binary(max_size=60))
def test_any_snappy_frames_decompress_or_raise_the_declared_error(data: bytes) -> None:
    with contextlib.suppress(CompressionError):
        decompress(Codec.SNAPPY, b"\x82SNAPPY\x00" + data, MB)


def test_lz4_blocks_do_not_need_one_another() -> None:
    """The Java clients reject linked blocks; the flag follows the frame's magic number."""
    large = bytes(range(256)) * 2000
    assert compress(Codec.LZ4, large)[4] & 0x20
    assert decompress(Codec.LZ4, compress(Codec.LZ4, large)) == large


def test_lz4_is_fast_at_the_default_level_like_in_kafka() -> None:
    data = bytes(range(256)) * 40 + DATA[:1000] + b"".join(b"%d," % (number * 7919) for number in range(5000))
    assert compress(Codec.LZ4, data) == compress(Codec.LZ4, data, 9) == compress(Codec.LZ4, data, 1)
    assert len(compress(Codec.LZ4, data, 10)) < len(compress(Codec.LZ4, data))
