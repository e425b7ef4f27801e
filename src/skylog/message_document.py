"""A message as a JSON document: the form in which commands and the console hand messages to programs."""

from __future__ import annotations

import base64
from typing import Any, Protocol

from skylog.printable import NoJsonError, iso_time, json_text, parse_json


class AnyMessage(Protocol):
    """A message, wherever it comes from. `timestamp_ms` is negative where it has none."""

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
    """What `tail --json` prints, the console exports, and `produce --json-input` reads.

    A value that is a JSON object, array, number or truth value is put in as that; other text is a string; what is no
    text is base64, and `value_encoding` says so.
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
    """The JSON document in a value; None where it is to be taken as text.

    A JSON string or null is left as text: unpacked, it could not be told from plain text or from no value at all.
    So is a number that would not be printed as it stands.
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
