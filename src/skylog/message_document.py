"""A message as a JSON document: the format in which commands and the console pass messages to programs."""

from __future__ import annotations

import base64
from typing import Any, Final, Protocol

from skylog.printable import NoJsonError, compact_json, iso_time, json_text, parse_json

_NO_VALUE: Final = ',"value":null,"headers":'  # in a string, the quotes would be escaped


class AnyMessage(Protocol):
    """A message from any source. `timestamp_ms` is negative if the message has no timestamp."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


def as_object(message: AnyMessage) -> dict[str, Any]:
    """Return the object that `tail --json` prints, the console exports, and `produce --json-input` reads.

    A value that is a JSON object, array, number or boolean is embedded as such. Other text is a string. Bytes that are
    not UTF-8 are base64, marked by `value_encoding`.
    """
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": iso_time(message.timestamp_ms),
        **_text_field("key", message.key),
        **_value_field(message.value),
        "headers": [{"name": name, **_text_field("value", value, "encoding")} for name, value in message.headers],
    }


def as_json_line(message: AnyMessage) -> str:
    """Return the object of `as_object` as one line of JSON. An embedded value is as it is stored, apart from blanks."""
    document = as_object(message)
    if isinstance(document["value"], str | None):
        return json_text(document)
    before, _, after = json_text(document | {"value": None}).partition(_NO_VALUE)
    return f'{before},"value":{compact_json(message.value.decode())},"headers":{after}'


def _text_field(field: str, data: bytes | None, marker: str = "") -> dict[str, str | None]:
    if data is None:
        return {field: None}
    try:
        return {field: data.decode()}
    except UnicodeDecodeError:
        return {field: base64.b64encode(data).decode(), marker or f"{field}_encoding": "base64"}


def _value_field(value: bytes | None) -> dict[str, Any]:
    field = _text_field("value", value)
    text = field["value"]
    if text is None or "value_encoding" in field:
        return field
    document = parse_value(text)
    return field if document is None else {"value": document}


def parse_value(text: str) -> Any:
    """Parse the JSON document in a value; None if the value must stay text.

    A JSON string or null stays text: parsed, it would look like plain text or a missing value. So does a number that
    JSON would print differently.
    """
    if not text or text.lstrip()[:1] not in "{[-0123456789tf":
        return None
    try:
        document = parse_json(text)
        if isinstance(document, dict | list) or json_text(document) == text:
            return document
    except NoJsonError:
        pass
    return None
