"""What a line of `skylog produce` means: plain text with or without a key, or one JSON object per message.

A format turns a line into the arguments of librdkafka's `produce`. It knows nothing of files and clusters.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from skylog.errors import SkylogError
from skylog.printable import NoJsonError, json_text, parse_json

Arguments = dict[str, Any]

_FIELDS: Final = frozenset(
    {"key", "key_encoding", "value", "value_encoding", "headers", "partition", "timestamp", "topic", "offset"}
)


class InputError(SkylogError):
    """A line that is no message."""


class InputFormat(Protocol):
    def parse(self, line: bytes) -> Arguments:
        """The message in `line`, whose line break is gone. Raises InputError."""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The line is the value; before `key_separator`, if there is one, stands the key. `fixed` goes with each."""

    fixed: Arguments
    key_separator: bytes | None = None
    null_value: bytes | None = None

    def parse(self, line: bytes) -> Arguments:
        key_separator = self.key_separator
        if key_separator is None:
            return {**self.fixed, "value": None if line == self.null_value else line}
        key, found, value = line.partition(key_separator)
        if not found:
            raise InputError(f"there is no key separator '{key_separator.decode()}' in it")
        return {**self.fixed, "key": key, "value": None if value == self.null_value else value}


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """The line is an object as `skylog tail --json` prints it; its topic and offset are left aside.

    Every field may be missing. A string is sent as it is, anything else but null as compact JSON. `fixed` goes before
    what the line says.
    """

    fixed: Arguments

    def parse(self, line: bytes) -> Arguments:
        try:
            document = parse_json(line.decode())
        except (NoJsonError, UnicodeDecodeError) as error:
            raise InputError(f"it is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise InputError("it is not a JSON object")
        unknown = sorted(document.keys() - _FIELDS)
        if unknown:
            raise InputError(f"there is no field '{unknown[0]}'; there are {', '.join(sorted(_FIELDS))}")
        message: Arguments = {
            "key": _content(document.get("key"), document.get("key_encoding")),
            "value": _content(document.get("value"), document.get("value_encoding")),
        }
        if document.get("partition") is not None:
            message["partition"] = _whole_number(document["partition"], "partition", 0, 0x7FFFFFFF)
        if document.get("timestamp") is not None:
            message["timestamp"] = _timestamp(document["timestamp"])
        if document.get("headers"):
            message["headers"] = list(_headers(document["headers"]))
        return {**message, **self.fixed}


def _content(item: Any, encoding: Any) -> bytes | None:
    """The bytes that a field of `tail --json` stands for."""
    if encoding not in (None, "base64"):
        raise InputError(f"there is no encoding '{encoding}'; there is base64, or none at all")
    if item is None:
        return None
    if encoding is not None:
        try:
            return base64.b64decode(item, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InputError(f"it is not base64: {error}") from error
    text = item if isinstance(item, str) else json_text(item)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError("it has half of a surrogate pair, which has no bytes") from error


def _headers(items: Any) -> Iterable[tuple[str, bytes | None]]:
    if isinstance(items, dict):
        items = [{"name": name, "value": value} for name, value in items.items()]
    if not isinstance(items, list):
        raise InputError("headers are a list of objects with name and value, or one object")
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise InputError("a header is an object with name and value")
        yield item["name"], _content(item.get("value"), item.get("encoding"))


def _timestamp(item: Any) -> int:
    if isinstance(item, str):
        try:
            item = round(datetime.fromisoformat(item).timestamp() * 1000)
        except (ValueError, OverflowError):
            raise InputError(f"timestamp '{item}' is not ISO 8601") from None
    return _whole_number(item, "timestamp", 1, 1 << 62)  # librdkafka takes 0 for now


def _whole_number(item: Any, field: str, smallest: int, largest: int) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or not smallest <= item <= largest:
        raise InputError(f"{field} is a whole number from {smallest} on, not {json_text(item)}")
    return item
