"""The input formats of `skylog produce`."""

from __future__ import annotations

import pytest

from skylog.cli.produce.input_format import InputError, JsonFormat, TextFormat


def test_a_line_is_the_value() -> None:
    assert TextFormat({"partition": 3}).parse(b"a:b") == {"partition": 3, "value": b"a:b"}


def test_the_first_separator_ends_the_key() -> None:
    assert TextFormat({}, key_separator=b"::").parse(b"k::v::w") == {"key": b"k", "value": b"v::w"}


def test_options_override_the_fields_of_a_json_line() -> None:
    message = JsonFormat({"partition": 3}).parse(b'{"partition": 1, "value": {"b": 1, "a": [2]}}')
    assert message == {"key": None, "value": b'{"b":1,"a":[2]}', "partition": 3}


def test_headers_are_a_list_or_an_object() -> None:
    in_list = JsonFormat({}).parse(
        b'{"headers": [{"name": "a", "value": "eA==", "encoding": "base64"}, {"name": "a"}]}'
    )
    assert in_list["headers"] == [("a", b"x"), ("a", None)]
    assert JsonFormat({}).parse(b'{"headers": {"a": "x"}}')["headers"] == [("a", b"x")]


@pytest.mark.parametrize(
    ("line", "explanation"),
    [
        (b"{", "invalid JSON"),
        (b"\xff", "invalid JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"valeu": 1}', "unknown field 'valeu'"),
        (b'{"partition": "x"}', "partition must be an integer of at least 0"),
        (b'{"partition": true}', "partition must be an integer"),
        (b'{"timestamp": 0}', "timestamp must be an integer of at least 1"),
        (b'{"timestamp": "yesterday"}', "not ISO 8601"),
        (b'{"value": "%", "value_encoding": "base64"}', "invalid base64"),
        (b'{"value": [1], "value_encoding": "base64"}', "invalid base64"),
        (b'{"value": "x", "value_encoding": "hex"}', "unknown encoding 'hex'"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"headers": 1}', "headers must be a list"),
        (b'{"headers": [1]}', "a header must be an object"),
        (b'{"headers": {"\\ud800": "x"}}', "cannot be the name of a header"),
        (b'{"headers": {"a\\u0000b": "x"}}', "cannot be the name of a header"),
    ],
)
def test_a_line_that_cannot_be_parsed_is_explained(line: bytes, explanation: str) -> None:
    with pytest.raises(InputError, match=explanation):
        JsonFormat({}).parse(line)
