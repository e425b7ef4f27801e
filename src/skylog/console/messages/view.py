"""A message as pages show it: cut to a length that a page can bear, and in words for the eye.

What a message holds is hostile. Here it is only made readable; templates escape it.
"""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

import orjson

from skylog.message_document import AnyMessage, as_object
from skylog.printable import escape_controls, json_text

SHOWN_VALUE_BYTES: Final = 4096
SHOWN_KEY_BYTES: Final = 512
SHOWN_HEADERS: Final = 20
WHOLE_BYTES: Final = 1024 * 1024  # of a message that has a page of its own
ONE_LINE: Final = 80
_HEX_COLUMNS: Final = 16

Row = dict[str, Any]


class _Excerpt(NamedTuple):
    """A message of which only the beginning is there."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def row(message: AnyMessage, value_bytes: int = SHOWN_VALUE_BYTES, key_bytes: int = SHOWN_KEY_BYTES) -> Row:
    """The document of `skylog tail --json`, cut where it is long, with sizes in bytes."""
    key, value, headers = message.key, message.value, message.headers
    shown_headers = headers if value_bytes >= WHOLE_BYTES else headers[:SHOWN_HEADERS]
    excerpt = _Excerpt(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp_ms,
        _cut(key, key_bytes),
        _cut(value, value_bytes),
        tuple((name[:key_bytes], _cut(content, key_bytes)) for name, content in shown_headers),
    )
    document = as_object(excerpt)
    if not isinstance(document["value"], str | None):
        try:
            orjson.dumps(document["value"])
        except TypeError:  # a number or a character that is JSON to Python only
            document["value"] = excerpt.value.decode() if excerpt.value is not None else None
    return document | {
        "timestamp_ms": None if message.timestamp_ms < 0 else message.timestamp_ms,
        "key_bytes": None if key is None else len(key),
        "value_bytes": None if value is None else len(value),
        "header_count": len(headers),
        "is_cut": (excerpt.key, excerpt.value, excerpt.headers) != (key, value, headers),
    }


def _cut(data: bytes | None, length: int) -> bytes | None:
    """The beginning of `data`; text is not cut inside a character."""
    if data is None or len(data) <= length:
        return data
    for end in range(length, length - 4, -1):
        try:
            data[:end].decode()
        except UnicodeDecodeError:
            continue
        return data[:end]
    return data[:length]


def kind(content: Any, encoding: str | None = None) -> str:
    """What a key, a value or a header is, in a word."""
    if content is None:
        return "null"
    if encoding:
        return "binary"
    if content == "":
        return "empty"
    return "text" if isinstance(content, str) else "JSON"


def readable(content: Any, encoding: str | None = None) -> str:
    """A field of a row for the eye: JSON indented unless it is short, text with its lines, bytes in hexadecimal."""
    if content is None:
        return ""
    if encoding:
        return hex_dump(base64.b64decode(content))
    if isinstance(content, str):
        return "\n".join(escape_controls(line) for line in content.replace("\r\n", "\n").split("\n"))
    indented = json_text(content, indent=2)
    one_line = " ".join(line.strip() for line in indented.split("\n"))
    return one_line if len(one_line) <= ONE_LINE else indented


def hex_dump(data: bytes) -> str:
    lines = []
    width = min(len(data), _HEX_COLUMNS) * 3
    for at in range(0, len(data), _HEX_COLUMNS):
        part = data[at : at + _HEX_COLUMNS]
        text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<{width}} {text}")
    return "\n".join(lines)
