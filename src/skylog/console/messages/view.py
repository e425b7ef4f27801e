"""Prepares messages for pages: truncates long ones and makes their content readable.

The content of messages is untrusted. It is not escaped here; templates do that.
"""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

import orjson

from skylog.console.messages.json_layout import StoredJson, pretty
from skylog.message_document import AnyMessage, as_object
from skylog.printable import escape_controls
from skylog.tracing import trace_parent

SHOWN_VALUE_BYTES: Final = 4096
SHOWN_KEY_BYTES: Final = 512
SHOWN_HEADERS: Final = 20
SHOWN_HEADERS_BYTES: Final = 4096
WHOLE_BYTES: Final = 1024 * 1024  # on the page of a single message
WHOLE_HEADERS: Final = 1000
FORMS: Final = ("pretty", "raw", "hex")
FOLDED_LINES: Final = 16  # a longer text is folded,
FOLDED_CHARACTERS: Final = 1200
HEAD_LINES: Final = 5  # and only its beginning is shown
HEAD_CHARACTERS: Final = 300
_HEX_COLUMNS: Final = 16

Row = dict[str, Any]
Headers = tuple[tuple[str, bytes | None], ...]


class Excerpt(NamedTuple):
    """The shown part of a message, and the sizes of the whole."""

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
        """Return the document of `skylog tail --json`, truncated, plus sizes in bytes and its trace."""
        document = as_object(self)
        if not isinstance(document["value"], str | None):
            assert self.value is not None
            text = self.value.decode()
            try:
                orjson.dumps(document["value"])
                document["value"] = StoredJson(text)
            except TypeError:  # Python's JSON accepts some numbers and characters that other libraries reject
                document["value"] = text
        found = trace_parent(self.headers)
        trace = {} if found is None else {"trace": {"trace_id": found.trace_id, "span_id": found.span_id}}
        return document | {
            "timestamp_ms": None if self.timestamp_ms < 0 else self.timestamp_ms,
            "key_bytes": self.key_bytes,
            "value_bytes": self.value_bytes,
            "header_count": self.header_count,
            "is_cut": self.is_cut,
            **trace,
        }


def excerpt(message: AnyMessage) -> Excerpt:
    """Return a short excerpt for lists, so that many can be kept."""
    return _excerpt(message, SHOWN_KEY_BYTES, SHOWN_VALUE_BYTES, SHOWN_HEADERS, SHOWN_HEADERS_BYTES)


def whole(message: AnyMessage) -> Excerpt:
    """Return a long excerpt for the page of a single message."""
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
    """Return the first headers, each truncated, as many as fit into `all_bytes`."""
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
    """Return the beginning of `data`. Text is not cut inside a character."""
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
    """Return the kind of content of a key, value or header: null, binary, empty, text or JSON."""
    if content is None:
        return "null"
    if encoding:
        return "binary"
    if content == "":
        return "empty"
    return "text" if isinstance(content, str) else "JSON"


def readable(content: Any, encoding: str | None = None, form: str = "pretty") -> str:
    """Format a field of a row as text: text with its lines, JSON indented unless `form` is raw, bytes in hexadecimal.

    Apart from blanks between JSON's tokens and control characters, it is what is stored.
    """
    if content is None:
        return ""
    if encoding or form == "hex":
        return hex_dump(stored_bytes(content, encoding))
    if isinstance(content, StoredJson) and form == "pretty":
        return pretty(content.text)
    text = content.text if isinstance(content, StoredJson) else content
    return "\n".join(escape_controls(line) for line in text.replace("\r\n", "\n").split("\n"))


def stored_bytes(content: Any, encoding: str | None) -> bytes:
    """Return the bytes of a field of a row."""
    if encoding:
        return base64.b64decode(content)
    text: str = content.text if isinstance(content, StoredJson) else content
    return text.encode(errors="surrogatepass")


def head(text: str) -> str | None:
    """Return the beginning of a long text, to show instead of it; None if it is short."""
    lines = text.split("\n", FOLDED_LINES + 1)
    if len(lines) <= FOLDED_LINES and len(text) <= FOLDED_CHARACTERS:
        return None
    return "\n".join(lines[:HEAD_LINES])[:HEAD_CHARACTERS] + " …"


def hex_dump(data: bytes) -> str:
    lines = []
    width = min(len(data), _HEX_COLUMNS) * 3
    for at in range(0, len(data), _HEX_COLUMNS):
        part = data[at : at + _HEX_COLUMNS]
        text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<{width}} {text}")
    return "\n".join(lines)
