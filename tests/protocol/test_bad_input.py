"""Every byte string is a possible request: it is read, or refused with MalformedRequestError only."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.errors import ErrorCode, KafkaError, MalformedRequestError
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.delete_topics import DeleteTopicsRequest
from skylog.protocol.describe_log_dirs import DescribeLogDirsRequest
from skylog.protocol.fetch import FetchRequest
from skylog.protocol.heartbeat import HeartbeatRequest
from skylog.protocol.metadata import MetadataRequest
from skylog.protocol.produce import ProduceRequest
from skylog.protocol.schema import Message

from .strategies import MESSAGE_VERSIONS, full_message, ids_of, smallest_message

each_message_version = pytest.mark.parametrize("case", MESSAGE_VERSIONS, ids=ids_of)


def refused(cls: type[Message], version: int, data: bytes) -> str:
    with pytest.raises(MalformedRequestError) as caught:
        cls.read(data, version)
    return str(caught.value)


def test_a_string_is_at_most_as_long_as_kafka_allows() -> None:
    longest = HeartbeatRequest(group_id="g" * 32_767, member_id="m", generation_id=1).write(4)
    assert len(HeartbeatRequest.read(longest, 4)[0].group_id) == 32_767
    too_long = b"\x81\x80\x02" + longest[3:4] + longest[3:]  # one more byte, and the length of that
    assert "more than 32767 bytes" in refused(HeartbeatRequest, 4, too_long)


@each_message_version
def test_a_message_cut_short_anywhere_is_refused(case: tuple[type[Message], int]) -> None:
    cls, version = case
    whole = full_message(cls, version).write(version)
    for length in range(len(whole)):
        for data in (whole[:length], memoryview(whole)[:length]):
            with pytest.raises(MalformedRequestError):
                cls.read(data, version)


@each_message_version
def test_a_message_with_one_wrong_byte_is_read_or_refused(case: tuple[type[Message], int]) -> None:
    cls, version = case
    whole = full_message(cls, version).write(version)
    for index in range(len(whole)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[index] = byte
            try:
                _message, end = cls.read(damaged, version)
            except MalformedRequestError:
                continue
            assert end <= len(whole)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(case=st.sampled_from(MESSAGE_VERSIONS), data=st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(case: tuple[type[Message], int], data: bytes) -> None:
    cls, version = case
    try:
        _message, end = cls.read(data, version)
    except MalformedRequestError:
        return
    assert end <= len(data)


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff" + bytes(100)),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f" + bytes(100)),
        (DeleteTopicsRequest, 1, b"\x7f\xff\xff\xff" + bytes(100)),
        (DescribeLogDirsRequest, 1, b"\0\0\0\x01\0\0\x7f\xff\xff\xff" + bytes(100)),
        (ApiVersionsRequest, 3, b"\x01\x01\xff\xff\xff\xff\x0f" + bytes(100)),
        (ApiVersionsRequest, 3, b"\xff\xff\xff\xff\x0f" + bytes(100)),
        (ProduceRequest, 3, b"\xff\xff\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\x01\0\0\0\0\x7f\xff\xff\xff" + bytes(100)),
    ],
    ids=["array", "compact array", "strings", "integers", "tagged fields", "compact string", "records"],
)
def test_a_huge_count_or_length_is_refused_before_anything_is_allocated(
    cls: type[Message], version: int, data: bytes
) -> None:
    cls.reader(version)
    tracemalloc.start()
    try:
        refused(cls, version, data)
        _now, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 50_000


@pytest.mark.parametrize("count", [1, 2, 100])
def test_an_array_with_more_items_than_the_bytes_can_hold_is_refused_at_its_count(count: int) -> None:
    data = count.to_bytes(4, "big") + bytes(2 * count - 1)
    assert refused(MetadataRequest, 1, data) == "MetadataRequest v1: topics has more items than bytes"


@each_message_version
def test_an_array_of_the_smallest_items_is_not_taken_for_a_lying_count(case: tuple[type[Message], int]) -> None:
    cls, version = case
    message = smallest_message(cls, version)
    assert cls.read(message.write(version), version)[0] == message


@pytest.mark.parametrize(
    ("cls", "version", "data", "field"),
    [
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics"),
        (MetadataRequest, 1, b"\0\0\0\x01\xff\xff", "topics.name"),
        (MetadataRequest, 9, b"\x02\0\0\x01\0\0\0", "topics.name"),
        (FetchRequest, 12, bytes(25) + b"\0\x01\x01\0", "topics"),
    ],
)
def test_null_in_a_required_field_is_refused_by_name(cls: type[Message], version: int, data: bytes, field: str) -> None:
    assert refused(cls, version, data) == f"{cls.__name__} v{version}: {field} is null"


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00"])
def test_a_negative_length_other_than_null_is_refused(length: bytes) -> None:
    assert "transactional_id has a negative length" in refused(ProduceRequest, 3, length + bytes(20))


@pytest.mark.parametrize("name", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_a_string_that_is_not_utf8_is_refused(name: bytes) -> None:
    data = b"\0\0\0\x01" + len(name).to_bytes(2, "big") + name
    assert "not UTF-8" in refused(MetadataRequest, 1, data)


def test_a_varint_of_six_bytes_is_refused() -> None:
    assert "varint" in refused(MetadataRequest, 9, b"\x80\x80\x80\x80\x80\x01" + bytes(50))


@pytest.mark.parametrize("tagged_size", [1, 3])
def test_a_tagged_field_with_a_wrong_size_is_refused(tagged_size: int) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], cluster_id="c")
    data = request.write(12)
    assert data.endswith(b"\x01\x00\x02\x02c")
    lying = data[:-3] + bytes([tagged_size]) + b"\x02c" + bytes(8)
    assert "cluster_id does not have the size given by its tag" in refused(FetchRequest, 12, lying)


def test_bytes_after_a_message_are_left_to_the_caller() -> None:
    request: Any = full_message(MetadataRequest, 4)
    data = request.write(4)
    assert MetadataRequest.read(data + b"more", 4) == (request, len(data))


@pytest.mark.parametrize("version", [-1, 0, 2, 12])
def test_a_version_that_cannot_be_coded_is_an_unsupported_version(version: int) -> None:
    with pytest.raises(KafkaError) as read:
        ProduceRequest.read(bytes(100), version)
    with pytest.raises(KafkaError) as written:
        full_message(ProduceRequest, 3).write(version)
    assert read.value.code == written.value.code == ErrorCode.UNSUPPORTED_VERSION
