"""The guarantees of a declaration, tested with small messages."""

from __future__ import annotations

import traceback
from uuid import UUID

import pytest

from skylog.errors import MalformedRequestError
from skylog.protocol.fields import Versions
from skylog.protocol.schema import (
    EncodedItems,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    UInt16,
    UInt32,
    field,
    message,
    source_of,
    struct,
)

ID = UUID("12345678-1234-5678-1234-567812345678")


@struct
class Inner:
    name: str = field("0+")


@message(api_key=1000, versions="0-2", flexible="2+")
class Outer(Message):
    inner: list[Inner] = field("0+")
    size: Int32 = field("0+", default=7)
    since_1: str = field("1+", default="none")
    only_0: list[Int32] = field("0", default_factory=list)


@struct
class TaggedInner:
    name: str = field("0+")
    note: str | None = field("2+", nullable="2+", tag=0, default=None)
    topic_id: UUID = field("2+", tag=300, default=ID)


@struct
class Position:
    epoch: Int32 = field("2+", default=-1)


@message(api_key=1000, versions="0-2", flexible="2+")
class OuterWithTags(Message):
    inner: list[TaggedInner] = field("0+")
    size: Int32 = field("0+", default=7)
    since_1: str = field("1+", default="none")
    position: Position | None = field("2+", tag=1, default=None)
    counts: list[Int32] = field("2+", tag=0, default_factory=list)


@message(api_key=1001, versions="0-1", flexible="1+")
class Everything(Message):
    a: Int8 = field("0+")
    b: Int16 = field("0+")
    c: UInt16 = field("0+")
    d: UInt32 = field("0+")
    e: Int64 = field("0+")
    f: float = field("0+")
    g: bool = field("0+")
    h: UUID = field("0+")
    i: bytes | None = field("0+", nullable="0+")
    j: Records = field("0+")
    k: list[UUID] = field("0+")


def test_a_field_that_the_version_lacks_reads_as_its_default_and_is_dropped_on_write() -> None:
    full = Outer(inner=[Inner(name="a")], size=1, since_1="new", only_0=[1, 2])
    assert Outer.read(full.write(0), 0)[0] == Outer(inner=[Inner(name="a")], size=1, only_0=[1, 2])
    assert Outer.read(full.write(1), 1)[0] == Outer(inner=[Inner(name="a")], size=1, since_1="new")


def test_defaults_that_are_lists_are_not_shared_between_messages() -> None:
    data = Outer(inner=[]).write(1)
    first, second = Outer.read(data, 1)[0], Outer.read(data, 1)[0]
    first.only_0.append(1)
    assert second.only_0 == [] == Outer(inner=[]).only_0


def test_every_kind_has_the_layout_of_its_version() -> None:
    full = Everything(a=-1, b=-2, c=65535, d=2**32 - 1, e=-3, f=0.5, g=True, h=ID, i=None, j=b"xyz", k=[ID])
    fixed = b"\xff\xff\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfd"
    fixed += b"\x3f\xe0\0\0\0\0\0\0\x01" + ID.bytes
    assert full.write(0) == fixed + b"\xff\xff\xff\xff\0\0\0\x03xyz\0\0\0\x01" + ID.bytes
    assert full.write(1) == fixed + b"\0\x04xyz\x02" + ID.bytes + b"\0"
    for version in (0, 1):
        assert Everything.read(full.write(version), version)[0] == full


def test_records_are_views_into_the_input_and_bytes_are_copies() -> None:
    full = Everything(a=0, b=0, c=0, d=0, e=0, f=0, g=False, h=ID, i=b"blob", j=memoryview(b"records"), k=[])
    data = bytearray(full.write(1))
    read, _ = Everything.read(data, 1)
    at = data.index(b"records")
    data[at : at + 7] = b"RECORDS"
    at = data.index(b"blob")
    data[at : at + 4] = b"BLOB"
    assert isinstance(read.j, memoryview)
    assert bytes(read.j) == b"RECORDS"
    assert read.i == b"blob"


def test_unknown_tagged_fields_are_skipped_anywhere() -> None:
    newer = OuterWithTags(
        inner=[TaggedInner(name="a", note="x" * 200, topic_id=UUID(int=1)), TaggedInner(name="b")],
        position=Position(epoch=3),
        counts=[1, 2, 3],
    )
    data = newer.write(2)
    assert Outer.read(data, 2) == (Outer(inner=[Inner(name="a"), Inner(name="b")]), len(data))


def test_known_tagged_fields_round_trip_among_unknown_ones() -> None:
    newer = OuterWithTags(inner=[TaggedInner(name="a", note="n")], position=Position(epoch=3), counts=[5])
    data = newer.write(2)
    tail = b"\x02\x00\x05\x02\0\0\0\x05\x01\x05\0\0\0\x03\0"
    assert data.endswith(tail)
    with_unknown = data[: -len(tail)] + b"\x03" + tail[1:] + b"\x63\x02??"
    assert OuterWithTags.read(with_unknown, 2) == (newer, len(with_unknown))


def test_tagged_fields_at_their_default_do_not_travel() -> None:
    plain = Outer(inner=[Inner(name="a")])
    assert OuterWithTags(inner=[TaggedInner(name="a", topic_id=ID)]).write(2) == plain.write(2)


@message(api_key=1002, versions="0-1", flexible="1+")
class Paged(Message):
    size: Int8 = field("0+")
    cursor: Inner | None = field("0+", nullable="0+", default=None)
    last: Int8 = field("0+")


def test_a_nullable_structure_follows_a_byte_that_marks_null() -> None:
    absent, present = Paged(size=5, last=6), Paged(size=5, cursor=Inner(name="a"), last=6)
    assert absent.write(0) == b"\x05\xff\x06"
    assert absent.write(1) == b"\x05\xff\x06\0"
    assert present.write(0) == b"\x05\x01\0\x01a\x06"
    assert present.write(1) == b"\x05\x01\x02a\0\x06\0"
    for version in (0, 1):
        for each in (absent, present):
            written = each.write(version)
            assert Paged.read(written, version) == (each, len(written))


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("count", [0, 1, 126, 127, 300])
def test_encoded_items_are_written_like_their_structures(version: int, count: int) -> None:
    items = [Inner(name=f"name {number}") for number in range(count)]
    encode = Outer.item_encoder(Inner, version)
    encoded = Outer(inner=EncodedItems(encode(item) for item in items))
    assert encoded.write(version) == Outer(inner=items).write(version)


def test_a_declaration_whose_annotation_and_nullability_disagree_is_refused() -> None:
    @message(api_key=1, versions="0", flexible="none")
    class Wrong(Message):
        name: str | None = field("0+")

    with pytest.raises(TypeError, match="disagree"):
        Wrong.reader(0)


def test_messages_are_compared_by_value_and_shown_with_their_fields() -> None:
    assert Outer(inner=[Inner(name="a")]) == Outer(inner=[Inner(name="a")])
    assert Outer(inner=[Inner(name="a")]) != Outer(inner=[Inner(name="b")])
    assert Inner(name="a").__eq__(Outer(inner=[])) is NotImplemented
    assert "name='a'" in repr(Outer(inner=[Inner(name="a")]))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Inner(name="a"))


def test_a_field_without_a_default_is_required() -> None:
    with pytest.raises(TypeError, match="inner"):
        Outer()  # type: ignore[call-arg]


def test_the_generated_source_appears_in_tracebacks() -> None:
    with pytest.raises(MalformedRequestError) as caught:
        Outer.read(b"\0\0\0", 0)
    assert "raise Malformed('Outer v0: the input ends too early')" in "".join(traceback.format_exception(caught.value))


def test_neighbouring_fixed_size_fields_are_read_and_written_by_one_struct_call() -> None:
    reading, writing = source_of(Everything, 1)
    assert "m0.a, m0.b, m0.c, m0.d, m0.e, m0.f, m0.g, m0.h, n = unpack" in reading
    assert "(m0.a, m0.b, m0.c, m0.d, m0.e, m0.f, m0.g, m0.h.bytes, n)" in writing


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3-5", [3, 5], [2, 6]), ("4+", [4, 900], [3]), ("2", [2], [1, 3]), ("none", [], [0, 1, 900])],
)
def test_version_ranges_read_like_kafkas(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_a_constructor_is_compiled_when_it_is_first_called() -> None:
    @struct
    class Declared:
        name: str = field("0+")
        size: Int32 = field("0+", default=7)
        parts: list[Int32] = field("0+", default_factory=list)

    lazy = Declared.__init__
    first = Declared(name="a")
    assert Declared.__init__ is not lazy
    assert (first.name, first.size, first.parts) == ("a", 7, [])
    second = Declared(name="a", parts=[])
    assert second == first
    second.parts.append(1)
    assert Declared(name="b").parts == []
    for wrong in ({}, {"name": "a", "other": 1}):
        with pytest.raises(TypeError, match=r"Declared\.__init__\(\) "):
            Declared(**wrong)  # type: ignore[arg-type]


def test_a_constructor_refuses_wrong_arguments_at_the_first_call() -> None:
    @struct
    class Declared:
        name: str = field("0+")

    with pytest.raises(TypeError, match="'name'"):
        Declared()  # type: ignore[call-arg]
