"""A message made fit for a page."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.cli.message_view import FileMessage
from skylog.console.messages.match import PLACES, Query
from skylog.console.messages.view import (
    MAX_INDENT_GROWTH,
    ONE_LINE,
    SHOWN_HEADERS,
    SHOWN_HEADERS_BYTES,
    SHOWN_KEY_BYTES,
    SHOWN_VALUE_BYTES,
    WHOLE_HEADERS,
    kind,
    readable,
    row,
    whole,
)
from skylog.printable import indentation_length, json_text

MESSAGES = st.builds(
    FileMessage,
    topic=st.just("t"),
    partition=st.integers(0, 5),
    offset=st.integers(0, 1 << 40),
    timestamp_ms=st.integers(-1, 1 << 62),
    key=st.none() | st.binary(),
    value=st.none() | st.binary(max_size=6000) | st.text(st.characters(codec="utf-8")).map(str.encode),
    headers=st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.none() | st.binary()), max_size=3).map(tuple),
)


def message(value: bytes | None = None, key: bytes | None = None, *headers: tuple[str, bytes | None]) -> FileMessage:
    return FileMessage("t", 0, 0, 1, key, value, headers)


@given(MESSAGES)
def test_every_message_can_be_told_as_json_and_shown(any_message: FileMessage) -> None:
    told = row(any_message)
    orjson.dumps(told)
    shown = readable(told["value"], told.get("value_encoding"))
    assert "\x1b" not in shown
    assert "\x00" not in shown


@pytest.mark.parametrize("value", [b'{"n":1e400}', b"[" * 5000, b'["\\ud800"]', b"[12345678901234567890123]"])
def test_json_that_cannot_be_told_again_is_text(value: bytes) -> None:
    told = row(message(value))
    orjson.dumps(told)
    assert told["value"] == value.decode()[:SHOWN_VALUE_BYTES]


def test_a_value_is_cut_between_characters() -> None:
    told = row(message("€".encode() * 5000))
    assert told["value"] == "€" * (SHOWN_VALUE_BYTES // 3)
    assert told["is_cut"]
    assert told["value_bytes"] == 15_000


def test_only_so_many_headers_are_shown_and_all_are_counted() -> None:
    told = row(message(b"", None, *[("h", b"x")] * 50))
    assert (len(told["headers"]), told["header_count"], told["is_cut"]) == (SHOWN_HEADERS, 50, True)


def test_short_json_is_one_line_and_long_json_is_indented() -> None:
    assert readable({"a": [1]}) == '{ "a": [ 1 ] }'
    assert readable({"a": "x" * 90}).startswith('{\n  "a": "xxx')


DEEP = b"[" * 200 + b",".join([b"1"] * 1848) + b"]" * 200


def test_json_that_would_be_mostly_blanks_is_not_indented() -> None:
    shown = readable(row(message(DEEP))["value"])
    assert shown == DEEP.decode()


def test_the_largest_deep_json_is_shown_quickly() -> None:
    value = b"[" * 200 + b",".join([b"1"] * 500_000) + b"]" * 200
    started = time.monotonic()
    assert len(readable(whole(message(value)).row()["value"])) == len(value)
    assert time.monotonic() - started < 3


@given(st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_the_length_of_an_indentation_is_known_before_it_is_made(document: Any) -> None:
    longer = len(json_text(document, indent=2)) - len(json_text(document))
    assert indentation_length(document, 1 << 40) == longer


@given(st.recursive(st.integers(), lambda inner: st.lists(inner), max_leaves=200))
def test_what_is_shown_of_json_is_bounded_by_its_length(part: Any) -> None:
    document = [part] * ONE_LINE
    compact = json_text(document)
    assert len(compact) > ONE_LINE
    assert len(readable(document)) <= len(compact) * (1 + MAX_INDENT_GROWTH)


def test_headers_are_shown_as_far_as_there_is_room_for_all_of_them_together() -> None:
    told = row(message(b"", None, *[("h", b"x" * 10_000)] * 20))
    assert len(told["headers"]) == SHOWN_HEADERS_BYTES // (SHOWN_KEY_BYTES + 1)
    assert (told["header_count"], told["is_cut"]) == (20, True)
    page = whole(message(b"", None, *[("h", b"")] * 5000)).row()
    assert (len(page["headers"]), page["header_count"], page["is_cut"]) == (WHOLE_HEADERS, 5000, True)


def test_bytes_are_shown_in_hexadecimal() -> None:
    told = row(message(bytes(range(250, 256)) * 4))
    lines = readable(told["value"], told["value_encoding"]).splitlines()
    assert lines[0].startswith("000000  fa fb fc fd fe ff fa")
    assert lines[1].startswith("000010  ")
    assert kind(told["value"], told["value_encoding"]) == "binary"


@pytest.mark.parametrize(
    ("text", "found", "missed"),
    [
        ("Ada", message(b"lovelace, ADA"), message(b"ad a")),
        ("ÉTÉ", message("un été".encode()), message(b"ete")),
        ("id-7", message(None, b"ID-7"), message(None, b"id-8")),
        ("trace", message(None, None, ("Trace", None)), message(None)),
        ("abc", message(None, None, ("h", b"xABCx")), message(None, None, ("h", None))),
        ("$.user.id=7", message(b'{"user":{"id":7}}'), message(b'{"user":{"id":70}}')),
        ("$.user.id=7", message(b'{"user":{"id":"7"}}'), message(b'{"user":[7]}')),
        ("$.tags[1]=new", message(b'{"tags":["a","new"]}'), message(b'{"tags":["new"]}')),
        ("$[0].ok=true", message(b'[{"ok":true}]'), message(b'[{"ok":1}]')),
        ("$.a=null", message(b'{"a":null}'), message(b"{}")),
    ],
)
def test_a_search_finds_what_it_says(text: str, found: FileMessage, missed: FileMessage) -> None:
    test = Query(text).test()
    assert test(found)  # type: ignore[arg-type]
    assert not test(missed)  # type: ignore[arg-type]


def test_a_search_may_mind_the_case_and_look_in_some_places_only() -> None:
    both = message(b"Value", b"Key")
    assert not Query("value", PLACES, minds_case=True).test()(both)  # type: ignore[arg-type]
    assert not Query("key", ("value", "headers")).test()(both)  # type: ignore[arg-type]
    assert Query("key", ("key",)).test()(both)  # type: ignore[arg-type]
