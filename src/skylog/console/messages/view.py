"""A message as pages show it: cut to a length that a page can bear, and in words for the eye.

What a message holds is hostile. Here it is only made readable; templates escape it.
"""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

import orjson

from skylog.message_document import AnyMessage, as_object
from skylog.printable import escape_controls, indentation_length, json_text

SHOWN_VALUE_BYTES: Final = 4096
SHOWN_KEY_BYTES: Final = 512
SHOWN_HEADERS: Final = 20
SHOWN_HEADERS_BYTES: Final = 4096
WHOLE_BYTES: Final = 1024 * 1024  # of a message that has a page of its own
WHOLE_HEADERS: Final = 1000
ONE_LINE: Final = 80
MAX_INDENT_GROWTH: Final = 3  # an indented text has no more blanks than so many times the text without them
_HEX_COLUMNS: Final = 16

Row = dict[str, Any]
Headers = tuple[tuple[str, bytes | None], ...]


class Excerpt(NamedTuple):
    """The beginning of a message, as much as is shown, and how much there is of it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    key_bytes: int | None
    value_bytes: int | None
    header_count: int
    is_cut: bool

    def row(self) -> Row:
        """The document of `skylog tail --json`, cut where it is long, with sizes in bytes."""
        document = as_object(self)
        if not isinstance(document["value"], str | None):
            try:
                orjson.dumps(document["value"])
            except TypeError:  # a number or a character that is JSON to Python only
                document["value"] = self.value.decode() if self.value is not None else None
        return document | {
            "timestamp_ms": None if self.timestamp_ms < 0 else self.timestamp_ms,
            "key_bytes": self.key_bytes,
            "value_bytes": self.value_bytes,
            "header_count": self.header_count,
            "is_cut": self.is_cut,
        }


def excerpt(message: AnyMessage) -> Excerpt:
    """For a list of messages: small, so that many can be kept."""
    return _excerpt(message, SHOWN_KEY_BYTES, SHOWN_VALUE_BYTES, SHOWN_HEADERS, SHOWN_HEADERS_BYTES)


def whole(message: AnyMessage) -> Excerpt:
    """For a page of its own: all that a page can bear."""
    return _excerpt(message, WHOLE_BYTES, WHOLE_BYTES, WHOLE_HEADERS, WHOLE_BYTES)


def row(message: AnyMessage) -> Row:
    return excerpt(message).row()


def _excerpt(message: AnyMessage, key_bytes: int, value_bytes: int, header_count: int, headers_bytes: int) -> Excerpt:
    key, value, headers = message.key, message.value, message.headers
    shown = (
        _cut(key, key_bytes),
        _cut(value, value_bytes),
        _cut_headers(headers[:header_count], key_bytes, headers_bytes),
    )
    return Excerpt(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp_ms,
        *shown,
        key_bytes=None if key is None else len(key),
        value_bytes=None if value is None else len(value),
        header_count=len(headers),
        is_cut=shown != (key, value, headers),
    )


def _cut_headers(headers: Headers, each_bytes: int, all_bytes: int) -> Headers:
    """The first headers, each cut, as many as `all_bytes` have room for."""
    shown = []
    left = all_bytes
    for name, content in headers:
        short = name[:each_bytes], _cut(content, each_bytes)
        left -= len(short[0]) + len(short[1] or b"")
        if left < 0:
            break
        shown.append(short)
    return tuple(shown)


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
    """A field of a row for the eye: text with its lines, bytes in hexadecimal, JSON indented.

    JSON that is short stays on one line, and so does what is too deep: there, blanks would be nearly all of it.
    """
    if content is None:
        return ""
    if encoding:
        return hex_dump(base64.b64decode(content))
    if isinstance(content, str):
        return "\n".join(escape_controls(line) for line in content.replace("\r\n", "\n").split("\n"))
    compact = json_text(content)
    enough = len(compact) * MAX_INDENT_GROWTH
    if len(compact) > ONE_LINE and indentation_length(content, enough) >= enough:
        return compact
    indented = json_text(content, indent=2)
    one_line = " ".join(line.strip() for line in indented.split("\n")) if len(compact) <= ONE_LINE else indented
    return one_line if len(one_line) <= ONE_LINE else indented


def hex_dump(data: bytes) -> str:
    lines = []
    width = min(len(data), _HEX_COLUMNS) * 3
    for at in range(0, len(data), _HEX_COLUMNS):
        part = data[at : at + _HEX_COLUMNS]
        text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<{width}} {text}")
    return "\n".join(lines)
