"""Batches that are not what they say: bombs, lies and nonsense, where the broker has to open them."""

from __future__ import annotations

import itertools
import struct
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from skylog.errors import ErrorCode
from skylog.records import BatchHeader, Codec
from skylog.records.batch import CRC_START
from skylog.records.compression import compress
from tests.patience import patience

from ..broker.conftest import create_topic
from ..broker.process import BrokerProcess
from ..broker.raw import RawClient, batch_of, values_in

pytestmark = pytest.mark.usefixtures("undisturbed")

_numbers = itertools.count()
MIB = 1024 * 1024
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
OPENING = [{"cleanup_policy": "compact"}, {"compression_type": "uncompressed"}, {"compression_type": "lz4"}]


def new_topic(client: RawClient, configs: dict[str, str] | None = None) -> str:
    return create_topic(client, f"opened-{next(_numbers)}", 1, configs)


def batch_around(block: bytes, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """A batch with any bytes for records, a right length and a right CRC."""
    header = BatchHeader.read(batch_of(b"x"))._replace(attributes=int(codec), batch_length=49 + len(block), **fields)
    header = header._replace(crc=crc32c(header.pack()[CRC_START:] + block))
    return header.pack() + block


def varint(value: int) -> bytes:
    raw, out = (value << 1) ^ (value >> 63), bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def record(key: bytes | None = b"k", time_delta: int = 0, offset_delta: int = 0, value: bytes = b"v") -> bytes:
    keyed = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(time_delta) + varint(offset_delta) + keyed + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def assert_unharmed(client: RawClient, topic: str) -> None:
    """The topic still takes and gives messages, at the offsets that follow."""
    end = client.end_offset(topic)
    assert client.produce(topic, batch_of(b"after")).base_offset == end
    assert values_in(client.fetch(topic, end).records) == [(end, b"after")]


@pytest.mark.parametrize("configs", OPENING, ids=lambda configs: next(iter(configs.values())))
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_decompression_bomb_is_refused_in_bounded_memory_and_time(
    broker: BrokerProcess, client: RawClient, codec: Codec, configs: dict[str, str]
) -> None:
    """Less than a megabyte that holds hundreds: one record that is all zeros."""
    if configs == {"compression_type": "lz4"} and codec is Codec.LZ4:
        pytest.skip("nothing has to be opened")
    bomb = _bomb(codec)
    assert len(bomb) < MIB
    topic = new_topic(client, configs)
    broker.reset_peak()
    before = broker.rss_bytes
    began = time.monotonic()
    answer = client.produce(topic, batch_around(bomb, codec))
    assert ErrorCode(answer.error_code) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert time.monotonic() - began < patience(3)
    assert broker.peak_rss_bytes - before < 250 * MIB
    assert_unharmed(client, topic)


@cache
def _bomb(codec: Codec) -> bytes:
    """Lz4 reaches 1:250 at most, gzip 1:1000."""
    size = (200 if codec is Codec.LZ4 else 300) * MIB
    head = varint(size) + b"\0" + varint(0) + varint(0) + varint(1) + b"k" + varint(size - 20)
    if codec is Codec.SNAPPY:  # one raw block that says how large it is, and nothing behind
        length, out = size, bytearray()
        while length > 0x7F:
            out.append(length & 0x7F | 0x80)
            length >>= 7
        return bytes([*out, length, 0, 0])
    return compress(codec, head + bytes(size))


@pytest.mark.parametrize("configs", OPENING[:2], ids=lambda configs: next(iter(configs.values())))
def test_very_many_tiny_records_in_a_small_batch_are_bounded_too(tmp_path: Path, configs: dict[str, str]) -> None:
    """A few kilobytes of zstd hold half a million records: opened one by one they stop everybody for seconds."""
    count = 500_000
    block = compress(Codec.ZSTD, record(b"", value=b"") * count)
    with BrokerProcess(tmp_path / "data") as own_broker, RawClient(own_broker.port, timeout_seconds=60) as own_client:
        topic = new_topic(own_client, configs)
        before = own_broker.rss_bytes
        began = time.monotonic()
        own_client.produce(topic, batch_around(block, Codec.ZSTD, last_offset_delta=count - 1, record_count=count))
        assert time.monotonic() - began < patience(2)
        assert own_broker.peak_rss_bytes - before < 100 * MIB


LIES: list[Any] = [
    pytest.param(b"", {}, id="no records at all"),
    pytest.param(b"\xff" * 80, {}, id="endless varint"),
    pytest.param(record()[:-2], {}, id="cut record"),
    pytest.param(varint(-5) + record(), {}, id="negative length"),
    pytest.param(varint(2**40) + record(), {}, id="huge length"),
    pytest.param(record(), {"record_count": 9, "last_offset_delta": 8}, id="more records than there are"),
    pytest.param(record(offset_delta=-7), {}, id="offset before the base"),
    pytest.param(record(offset_delta=2**40), {}, id="offset far ahead"),
    pytest.param(record() + record(offset_delta=-3), {"record_count": 2, "last_offset_delta": 1}, id="offsets go back"),
    pytest.param(record() + record(), {"record_count": 2, "last_offset_delta": 1}, id="offset twice"),
    pytest.param(record(time_delta=2**62), {"base_timestamp": 2**62}, id="time beyond 64 bits"),
    pytest.param(record(time_delta=-(2**63)), {"base_timestamp": -(2**63)}, id="time before everything"),
    pytest.param(record(), {"base_offset": 2**63 - 1}, id="largest base offset"),
    pytest.param(record(), {"base_offset": -(2**63)}, id="smallest base offset"),
    pytest.param(record(), {"max_timestamp": 2**63 - 1, "base_timestamp": -(2**63)}, id="extreme times"),
    pytest.param(record() + b"tail", {}, id="bytes behind the records"),
]


@pytest.mark.parametrize("configs", [{}, *OPENING], ids=lambda configs: next(iter(configs.values()), "plain"))
@pytest.mark.parametrize(("block", "fields"), LIES)
def test_lies_inside_a_batch_are_refused_or_stored_and_never_move_the_log_back(
    client: RawClient, block: bytes, fields: dict[str, int], configs: dict[str, str]
) -> None:
    """Twice each: the second request of a form may take another way through the broker."""
    topic = new_topic(client, configs)
    client.produce(topic, batch_of(b"first"))
    for codec in (Codec.NONE, Codec.GZIP):
        end = client.end_offset(topic)
        data = block if codec is Codec.NONE else compress(codec, block)
        answer = client.produce(topic, batch_around(data, codec, **fields))
        if answer.error_code == 0:
            assert answer.base_offset == end
            assert client.end_offset(topic) > end
        else:
            assert client.end_offset(topic) == end
        for timestamp in (-3, 0, 1, 999, 2**62, 2**63 - 1):
            client.list_offset(topic, timestamp)
    assert_unharmed(client, topic)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_time_lookup_into_a_batch_that_does_not_decompress_is_answered(client: RawClient, codec: Codec) -> None:
    """The broker stores batches unopened, so nonsense with a right CRC can be in a log. Only its header can be told."""
    topic = new_topic(client)
    block = b"this is not compressed at all" * 3
    assert client.produce(topic, batch_around(block, codec, max_timestamp=5000)).error_code == 0
    row = client.list_offset(topic, 1)
    assert (row.error_code, row.offset) in {(ErrorCode.CORRUPT_MESSAGE, -1), (0, -1), (0, 0)}
    assert client.list_offset(topic, -1).offset == 1
    assert_unharmed(client, topic)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_a_time_lookup_into_a_bomb_is_bounded(broker: BrokerProcess, client: RawClient, codec: Codec) -> None:
    topic = new_topic(client)
    assert client.produce(topic, batch_around(_bomb(codec), codec, max_timestamp=5000)).error_code == 0
    broker.reset_peak()
    before = broker.rss_bytes
    began = time.monotonic()
    client.list_offset(topic, 1)
    assert time.monotonic() - began < patience(3)
    assert broker.peak_rss_bytes - before < 600 * MIB
    assert_unharmed(client, topic)


def test_a_batch_whose_length_says_more_than_is_there(client: RawClient) -> None:
    topic = new_topic(client)
    batch = batch_of(b"x")
    for length in (-1, 0, 48, len(batch), 2**31 - 1, -(2**31)):
        struct.pack_into(">i", batch, 8, length)
        assert client.produce(topic, batch).error_code != 0
    assert client.end_offset(topic) == 0
