"""The decoder of pgoutput, against an encoder of its own and against damaged bytes."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.capture.pgoutput import (
    UNCHANGED,
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Message,
    Other,
    PgoutputError,
    Relation,
    Truncate,
    Update,
    Values,
    decode,
    format_lsn,
    parse_lsn,
)

IDS = st.integers(0, 2**32 - 1)
LSNS = st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
ROWS = st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40)), max_size=8)
COLUMNS = st.lists(st.builds(Column, NAMES, IDS, st.booleans(), st.integers(-1, 2**31 - 1)), max_size=6).map(tuple)
OLD = st.one_of(st.none(), st.tuples(ROWS, st.booleans()))
MESSAGES = st.one_of(
    st.builds(Begin, LSNS, TIMES, IDS),
    st.builds(Commit, LSNS, LSNS, TIMES),
    st.builds(Relation, IDS, NAMES, NAMES, st.sampled_from("dfin"), COLUMNS),
    st.builds(Insert, IDS, ROWS),
    st.builds(lambda relation, old, new: Update(relation, old and old[0], new, bool(old and old[1])), IDS, OLD, ROWS),
    st.builds(Delete, IDS, ROWS),
    st.builds(Truncate, st.lists(IDS, max_size=5).map(tuple)),
)


def encoded_row(values: Values) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, bytes):
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
        else:
            parts.append(b"u")
    return b"".join(parts)


def encoded(message: Message) -> bytes:
    match message:
        case Begin():
            return b"B" + struct.pack(">QqI", *message)
        case Commit():
            return b"C\0" + struct.pack(">QQq", *message)
        case Relation(id_, schema, table, identity, columns):
            head = struct.pack(">I", id_) + schema.encode() + b"\0" + table.encode() + b"\0" + identity.encode()
            rest = [
                struct.pack(">B", column.is_key)
                + column.name.encode()
                + b"\0"
                + struct.pack(">Ii", column.type_oid, column.type_modifier)
                for column in columns
            ]
            return b"R" + head + struct.pack(">H", len(columns)) + b"".join(rest)
        case Insert(relation, new):
            return b"I" + struct.pack(">I", relation) + b"N" + encoded_row(new)
        case Update(relation, old, new, is_whole):
            before = b"" if old is None else (b"O" if is_whole else b"K") + encoded_row(old)
            return b"U" + struct.pack(">I", relation) + before + b"N" + encoded_row(new)
        case Delete(relation, old):
            return b"D" + struct.pack(">I", relation) + b"K" + encoded_row(old)
        case Truncate(relations):
            return b"T" + struct.pack(">IB", len(relations), 0) + struct.pack(f">{len(relations)}I", *relations)
        case Other(kind):
            return kind.encode()


@given(MESSAGES, st.binary(max_size=30))
def test_every_message_is_decoded_as_it_was_encoded(message: Message, before: bytes) -> None:
    assert decode(before + encoded(message), len(before)) == message


@given(MESSAGES, st.data())
def test_a_message_that_ends_early_or_late_is_an_error(message: Message, data: st.DataObject) -> None:
    whole = encoded(message)
    with pytest.raises(PgoutputError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(PgoutputError):
        decode(whole + b"\0")


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    with suppress(PgoutputError):
        decode(data)


@given(LSNS)
def test_a_place_in_the_wal_is_written_as_postgresql_does(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn
    assert format_lsn(0x16B374D848) == "16/B374D848"
