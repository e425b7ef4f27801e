"""Untrusted bytes made printable."""

from __future__ import annotations

import json
import unicodedata

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from skylog.cli.message_view import FileMessage, as_line
from skylog.cli.options import parse_when
from skylog.cli.produce.input_format import JsonFormat
from skylog.message_document import as_object
from skylog.printable import as_text, escape_controls, iso_time, json_text

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"))  # `produce` can send no others
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary()), max_size=3)
MESSAGES = st.builds(
    FileMessage,
    topic=st.just("t"),
    partition=st.integers(0, 5),
    offset=st.integers(0, 1 << 40),
    timestamp_ms=st.integers(1, 4_000_000_000_000),
    key=st.none() | st.binary(),
    value=st.none() | st.binary() | st.text(st.characters(codec="utf-8")).map(str.encode),
    headers=HEADERS.map(tuple),
)


def is_obeyed(character: str) -> bool:
    """Whether a terminal may interpret the text instead of displaying it."""
    return character != "\t" and (
        unicodedata.category(character) in ("Cc", "Zl", "Zp") or "\u202a" <= character <= "\u202e"
    )


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_nothing_that_a_terminal_obeys_is_let_through(text: str) -> None:
    assert not any(map(is_obeyed, escape_controls(text)))
    assert not any(map(is_obeyed, json_text({text: text})))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_means_the_same(text: str) -> None:
    assert json.loads(json_text([text])) == [text]


@given(MESSAGES)
def test_a_message_is_one_line(message: FileMessage) -> None:
    line = as_line(message, meta=True, pretty=False)
    assert line.endswith("\n")
    assert not any(map(is_obeyed, line[:-1]))


@given(MESSAGES)
def test_what_is_printed_as_json_is_read_back_as_the_same_message(message: FileMessage) -> None:
    arguments = JsonFormat({}).parse(json_text(as_object(message)).encode())
    assert arguments["key"] == message.key
    assert arguments["partition"] == message.partition
    assert arguments["timestamp"] == message.timestamp_ms
    assert tuple(arguments.get("headers", ())) == message.headers
    if arguments["value"] != message.value:  # white space in JSON is not kept, its meaning is
        assert json.loads(arguments["value"]) == json.loads(message.value or b"")


@pytest.mark.parametrize(
    "text", ["{", "NaN", "1.10", "[" * 5000 + "]" * 5000, '{"a":1e999}', "[1]x", '"quoted"', "null", " ", ""]
)
def test_a_value_that_is_not_quite_json_is_text(text: str) -> None:
    assert as_object(FileMessage("t", 0, 0, 1, None, text.encode(), ()))["value"] == text


def test_plain_text_stays_as_it_is() -> None:
    assert escape_controls("[bold]naïve\t日本語 🎉") == "[bold]naïve\t日本語 🎉"
    assert as_text(b"ok \xff\x1b[0m\n") == "ok \\xff\\x1b[0m\\n"


@pytest.mark.parametrize(
    ("timestamp_ms", "printed"), [(1_714_564_800_123, "2024-05-01T12:00:00.123Z"), (-1, None), (1 << 62, None)]
)
def test_times_are_printed_in_utc_where_a_calendar_has_them(timestamp_ms: int, printed: str | None) -> None:
    assert iso_time(timestamp_ms) == printed


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("90s", 910_000),
        ("1m30s", 910_000),
        ("500ms", 999_500),
        ("1970-01-01T00:00:07Z", 7_000),
        ("1970-01-01T02:00+02:00", 0),
    ],
)
def test_a_time_is_iso_or_how_long_ago(text: str, expected_ms: int) -> None:
    assert parse_when(text, now_ms=1_000_000) == expected_ms


@pytest.mark.parametrize("text", ["", "h", "5", "5y", "-1h", "tomorrow"])
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_when(text, now_ms=0)
