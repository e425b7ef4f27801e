"""How `skylog tail` shows a message: as an object for scripts, as a line for pipes, in colour for people."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.highlighter import JSONHighlighter
from rich.text import Text

from skylog.cli.printable import NoJsonError, as_text, iso_time, json_text, parse_json

if TYPE_CHECKING:
    from skylog.client import Message

_highlight = JSONHighlighter()


class FileMessage(NamedTuple):
    """A message that was found in a file. `timestamp_ms` is negative where it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def as_object(message: Message | FileMessage) -> dict[str, Any]:
    """What `--json` prints, and `produce --json-input` reads.

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


def as_line(message: Message | FileMessage, *, meta: bool, pretty: bool) -> str:
    """For pipes: the value on one line, or indented if it is JSON and `pretty`; before it, if wanted, the rest."""
    value = _value_text(message.value, pretty)
    return f"{prefix(message)}\t{value}\n" if meta else f"{value}\n"


def as_rich(message: Message | FileMessage, *, meta: bool, pretty: bool) -> Text:
    """For people: the rest dimmed, then the value, coloured if it is JSON. Nothing in it is taken as markup."""
    value = Text(_value_text(message.value, pretty))
    if message.value is None:
        value.stylize("dim italic")
    elif message.value[:1] in (b"{", b"["):
        _highlight.highlight(value)
    return Text.assemble((prefix(message) + "  ", "dim"), value) if meta else value


def prefix(message: Message | FileMessage) -> str:
    """Partition, offset, time, key and headers, for the eye."""
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
