"""Messages prepared for pages, and search queries."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.cli.message_view import FileMessage
from skylog.console.messages.json_layout import MAX_INDENT_GROWTH, ONE_LINE, StoredJson, encode, pretty
from skylog.console.messages.produce import parse_message
from skylog.console.messages.produce_again import again
from skylog.console.messages.query import PLACES, Query
from skylog.console.messages.view import (
    SHOWN_HEADERS,
    SHOWN_HEADERS_BYTES,
    SHOWN_KEY_BYTES,
    SHOWN_VALUE_BYTES,
    WHOLE_HEADERS,
    head,
    kind,
    readable,
    row,
    whole,
)
from skylog.console.server.fields import FieldError, Fields
from skylog.message_document import as_json_line, as_object
from skylog.printable import compact_json, json_text

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
def test_every_message_can_be_encoded_as_json_and_shown(any_message: FileMessage) -> None:
    shown_row = row(any_message)
    encode(shown_row)
    shown = readable(shown_row["value"], shown_row.get("value_encoding"))
    assert "\x1b" not in shown
    assert "\x00" not in shown


@pytest.mark.parametrize("value", [b'{"n":1e400}', b"[" * 5000, b'["\\ud800"]', b"[12345678901234567890123]"])
def test_json_that_cannot_be_encoded_again_is_text(value: bytes) -> None:
    shown_row = row(message(value))
    encode(shown_row)
    assert shown_row["value"] == value.decode()[:SHOWN_VALUE_BYTES]


def test_a_value_is_cut_between_characters() -> None:
    shown_row = row(message("€".encode() * 5000))
    assert shown_row["value"] == "€" * (SHOWN_VALUE_BYTES // 3)
    assert shown_row["is_cut"]
    assert shown_row["value_bytes"] == 15_000


def test_the_first_headers_are_shown_and_all_are_counted() -> None:
    shown_row = row(message(b"", None, *[("h", b"x")] * 50))
    assert (len(shown_row["headers"]), shown_row["header_count"], shown_row["is_cut"]) == (SHOWN_HEADERS, 50, True)


def test_short_json_is_one_line_and_long_json_is_indented() -> None:
    assert readable(StoredJson('{"a":[1], "b":{}}')) == '{ "a": [ 1 ], "b": {} }'
    assert readable(StoredJson(json_text({"a": "x" * 90}))).startswith('{\n  "a": "xxx')


DEEP = b"[" * 200 + b",".join([b"1"] * 1848) + b"]" * 200


def test_json_that_would_be_mostly_indentation_is_not_indented() -> None:
    shown = readable(row(message(DEEP))["value"])
    assert shown == DEEP.decode()


def test_the_largest_deep_json_is_shown_quickly() -> None:
    value = b"[" * 200 + b",".join([b"1"] * 500_000) + b"]" * 200
    started = time.monotonic()
    assert len(readable(whole(message(value)).row()["value"])) == len(value)
    assert time.monotonic() - started < 3


@given(st.recursive(st.integers(), lambda inner: st.lists(inner), max_leaves=200))
def test_what_is_shown_of_json_is_bounded_by_its_length(part: Any) -> None:
    text = json_text([part] * ONE_LINE)
    assert len(text) > ONE_LINE
    assert len(readable(StoredJson(text))) <= len(text) * (1 + MAX_INDENT_GROWTH)


@given(
    st.recursive(
        st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from([None, 1, 4]),
)
def test_json_is_laid_out_without_another_change(document: Any, indent: int | None) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    for shown in (pretty(text), compact_json(text)):
        assert json.loads(shown) == document
        assert compact_json(shown) == compact_json(text)


STORED = '{"price": 1.10, "price": 1e2, "a":[], "b":{}, "c": "\\u00e9\\/"}'


def test_stored_json_is_shown_with_its_digits_escapes_and_repeated_keys() -> None:
    shown_row = row(message(STORED.encode()))
    assert readable(shown_row["value"], form="raw") == STORED
    assert compact_json(readable(shown_row["value"])) == compact_json(STORED)
    assert '"price": 1.10' in readable(shown_row["value"])
    assert b'"value":' + compact_json(STORED).encode() in encode(shown_row)
    assert readable(shown_row["value"], form="hex").startswith("000000  7b 22 70 72 69 63 65")
    line = as_json_line(message(STORED.encode()))
    assert compact_json(STORED) in line
    assert json.loads(line)["value"]["price"] == 100


def test_a_line_with_hostile_keys_and_headers_has_its_value() -> None:
    trap = ',"value":null,"headers":'
    line = as_json_line(message(b'{"n": 1.0}', trap.encode(), (trap, None)))
    assert json.loads(line) == as_object(message(b'{"n": 1.0}', trap.encode(), (trap, None)))


def test_a_long_text_is_folded() -> None:
    assert head("short\ntext") is None
    assert head("x" * 5000) == "x" * 300 + " …"
    assert head("\n".join("abcdefghijklmnopqrstuvwxyz")) == "a\nb\nc\nd\ne …"


@pytest.mark.parametrize("value", [b"plain", None, b"", b"\xff\x00", b"a\r\nb", STORED.encode()])
def test_a_message_can_be_produced_again_as_it_was(value: bytes | None) -> None:
    stored = message(value, b"k\xff", ("h", b"x=y"), ("null", None))
    fields = again(whole(stored).row())
    assert fields.pop("left_out") == 1
    pairs = [(name, str(each).replace("\n", "\r\n")) for name, each in fields.items()]  # as a browser sends them
    new = parse_message(Fields(pairs), is_form=True)
    assert (new.key, new.value, new.headers, new.partition) == (b"k\xff", value, [("h", b"x=y")], 0)


def test_headers_are_limited_to_a_total_size() -> None:
    shown_row = row(message(b"", None, *[("h", b"x" * 10_000)] * 20))
    assert len(shown_row["headers"]) == SHOWN_HEADERS_BYTES // (SHOWN_KEY_BYTES + 1)
    assert (shown_row["header_count"], shown_row["is_cut"]) == (20, True)
    page = whole(message(b"", None, *[("h", b"")] * 5000)).row()
    assert (len(page["headers"]), page["header_count"], page["is_cut"]) == (WHOLE_HEADERS, 5000, True)


def test_bytes_are_shown_in_hexadecimal() -> None:
    shown_row = row(message(bytes(range(250, 256)) * 4))
    lines = readable(shown_row["value"], shown_row["value_encoding"]).splitlines()
    assert lines[0].startswith("000000  fa fb fc fd fe ff fa")
    assert lines[1].startswith("000010  ")
    assert kind(shown_row["value"], shown_row["value_encoding"]) == "binary"


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
        ("$.a = 1.10", message(b'{"a":1.1}'), message(b'{"a":1.11}')),
        ("$.a > 7", message(b'{"a":10}'), message(b'{"a":7}')),
        ("$.a < 7", message(b'{"a":-1e3}'), message(b'{"a":"x"}')),
        ("$.a != 7", message(b'{"a":8}'), message(b"{}")),
        ("$.a contains ow", message(b'{"a":"New Owl"}'), message(b'{"a":"cat","b":"ow"}')),
        ("$.a = x AND $.b > 1", message(b'{"a":"x","b":2}'), message(b'{"a":"x","b":1}')),
    ],
)
def test_a_query_matches_and_rejects_messages(text: str, found: FileMessage, missed: FileMessage) -> None:
    predicate = Query(text).predicate()
    assert predicate(found)
    assert not predicate(missed)


@pytest.mark.parametrize(
    ("text", "found", "missed"),
    [
        ("key = id-7", message(None, b"id-7"), message(b"id-7", b"id-8")),
        ("key > 9", message(None, b"10"), message(None, b"8")),
        ("value contains 'web", message(b"the 'Web"), message(None)),
        ("headers.source = web shop", message(None, None, ("source", b"web shop")), message(None, None, ("x", b"web"))),
        ('value = "a AND b"', message(b"a AND b"), message(b"a")),
        ("key$.id = 7 AND value != x", message(b"y", b'{"id":7}'), message(b"x", b'{"id":7}')),
        ('value = ""', message(b""), message(b"x")),
        ("value contains rock and roll or jazz", message(b"Rock and roll or jazz"), message(b"rock")),
        ('value = "a or key = b"', message(b"a or key = b"), message(b"a")),
        ('value contains "=="', message(b"a == b"), message(b"a = b")),
    ],
)
def test_conditions_on_keys_values_and_headers(text: str, found: FileMessage, missed: FileMessage) -> None:
    predicate = Query("", conditions=text).predicate()
    assert predicate(found)
    assert not predicate(missed)


@pytest.mark.parametrize(
    "text", ["user.id = 7", "$.a", "$.a ~ 7", "key =", "= 7", "key = 7 AND", "headers. = x", 'key = "x', "$.a[x] = 1"]
)
def test_what_is_no_filter_is_an_error(text: str) -> None:
    with pytest.raises(FieldError):
        Query("", conditions=text).predicate()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("key == x", "'==' is not an operator"),
        ("$.a >= 7", "'>=' is not an operator"),
        ("$.a <> 7", "'<>' is not an operator"),
        ("key = a OR key = b", "'OR' does not join"),
        ("key = a and $.a.b > 3", "'and' does not join"),
        ("key = a || value contains b", "'\\|\\|' does not join"),
        ("$.n > 5 AND$.n < 8", "AND needs a blank"),
        ("key = 'a'", "use double ones"),
    ],
)
def test_what_would_be_a_filter_elsewhere_is_an_error_and_not_a_text(text: str, reason: str) -> None:
    with pytest.raises(FieldError, match=reason):
        Query("", conditions=text).predicate()


def test_a_query_can_be_case_sensitive_and_limited_to_some_places() -> None:
    both = message(b"Value", b"Key")
    assert not Query("value", PLACES, is_case_sensitive=True).predicate()(both)
    assert not Query("key", ("value", "headers")).predicate()(both)
    assert Query("key", ("key",)).predicate()(both)
