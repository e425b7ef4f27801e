from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.errors import MalformedRequestError
from skylog.protocol.primitives import (
    nullable_string,
    read_nullable_string,
    read_uvarint,
    skip_tagged_fields,
    uuid_from_bytes,
    uvarint,
)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_varints_have_kafkas_bytes(value: int, data: bytes) -> None:
    assert uvarint(value) == data
    assert read_uvarint(b"?" + data, 1) == (value, 1 + len(data))


@given(st.integers(0, 2**35 - 1))
def test_varints_round_trip(value: int) -> None:
    data = uvarint(value)
    assert read_uvarint(data, 0) == (value, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff", b"\x80\x80\x80\x80\x80\x01"])
def test_a_varint_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        read_uvarint(data, 0)


@given(st.none() | st.text(max_size=50))
def test_nullable_strings_round_trip(value: str | None) -> None:
    data = nullable_string(value)
    assert read_nullable_string(b"?" + data, 1) == (value, 1 + len(data))


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\x01", b"\xff\xfe", b"\x80\0", b"\0\x01\xff", b"\x7f\xff" + bytes(99)]
)
def test_a_string_that_is_cut_negative_or_not_utf8_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        read_nullable_string(data, 0)


def test_tagged_fields_are_skipped_by_their_size() -> None:
    assert skip_tagged_fields(b"\x05\x03abc\x99\x02\x00rest", 0, 2) == 8


@pytest.mark.parametrize(("data", "count"), [(b"\x05\x03ab", 1), (b"\x05", 1), (b"\x01\x00", 2), (b"", 2**31)])
def test_tagged_fields_that_do_not_fit_are_refused(data: bytes, count: int) -> None:
    with pytest.raises(MalformedRequestError):
        skip_tagged_fields(data, 0, count)


@given(st.uuids())
def test_a_uuid_is_its_sixteen_bytes(value: UUID) -> None:
    assert uuid_from_bytes(value.bytes) == value
