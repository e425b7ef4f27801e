"""Formats a message for `skylog tail` and `skylog log dump`: as a line for pipes, in colour for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.highlighter import JSONHighlighter
from rich.text import Text

from skylog.printable import NoJsonError, as_text, iso_time, json_text, parse_json

if TYPE_CHECKING:
    from skylog.client import Message

_highlight = JSONHighlighter()


class FileMessage(NamedTuple):
    """A message read from a log file. `timestamp_ms` is negative if it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def as_line(message: Message | FileMessage, *, meta: bool, pretty: bool) -> str:
    """Format the value on one line, or indented if it is JSON and `pretty`. With `meta`, the prefix precedes it."""
    value = _value_text(message.value, pretty)
    return f"{prefix(message)}\t{value}\n" if meta else f"{value}\n"


def as_rich(message: Message | FileMessage, *, meta: bool, pretty: bool) -> Text:
    """Format the value for terminals, coloured if it is JSON. With `meta`, add a dimmed prefix. Ignores markup."""
    value = Text(_value_text(message.value, pretty))
    if message.value is None:
        value.stylize("dim italic")
    elif message.value[:1] in (b"{", b"["):
        _highlight.highlight(value)
    return Text.assemble((prefix(message) + "  ", "dim"), value) if meta else value


def prefix(message: Message | FileMessage) -> str:
    """Format partition, offset, time, key and headers as text."""
    parts = [f"{message.partition}:{message.offset}", iso_time(message.timestamp_ms) or "-"]
    if message.key is not None:
        parts.append(f"key={as_text(message.key)}")
    for name, value in message.headers:
        parts.append(f"{as_text(name.encode(errors='surrogatepass'))}={'null' if value is None else as_text(value)}")
    return " ".join(parts)


def _value_text(value: bytes | None, pretty: bool) -> str:
    if value is None:
        return "null"
    if value[:1] in (b"{", b"[") and (pretty or b"\n" in value):
        try:
            return json_text(parse_json(value.decode()), indent=2 if pretty else None)
        except (NoJsonError, UnicodeDecodeError):
            pass
    return as_text(value)
