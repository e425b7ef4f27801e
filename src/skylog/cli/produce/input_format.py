"""The input formats of `skylog produce`: plain text with or without a key, or one JSON object per message.

A format converts a line to the arguments of librdkafka's `produce`. It does not depend on files or clusters.
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
    """A line that cannot be parsed."""


class InputFormat(Protocol):
    def parse(self, line: bytes) -> Arguments:
        """Parse `line`, without its line break. Raises InputError."""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The line is the value, or key and value separated by `key_separator`. `fixed` is added to every message."""

    fixed: Arguments
    key_separator: bytes | None = None
    null_value: bytes | None = None

    def parse(self, line: bytes) -> Arguments:
        key_separator = self.key_separator
        if key_separator is None:
            return {**self.fixed, "value": None if line == self.null_value else line}
        key, found, value = line.partition(key_separator)
        if not found:
            raise InputError(f"no key separator '{key_separator.decode(errors='backslashreplace')}' found")
        return {**self.fixed, "key": key, "value": None if value == self.null_value else value}


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """The line is an object as printed by `skylog tail --json`; its topic and offset are ignored.

    All fields are optional. A string is sent unchanged, null as null, any other value as compact JSON. `fixed`
    overrides the fields of the line.
    """

    fixed: Arguments

    def parse(self, line: bytes) -> Arguments:
        try:
            document = parse_json(line.decode())
        except (NoJsonError, UnicodeDecodeError) as error:
            raise InputError(f"invalid JSON: {error}") from error
        if not isinstance(document, dict):
            raise InputError("not a JSON object")
        unknown = sorted(document.keys() - _FIELDS)
        if unknown:
            raise InputError(f"unknown field '{unknown[0]}'; expected {', '.join(sorted(_FIELDS))}")
        message: Arguments = {
            "key": _content(document.get("key"), document.get("key_encoding")),
            "value": _content(document.get("value"), document.get("value_encoding")),
        }
        if document.get("partition") is not None:
            message["partition"] = _integer(document["partition"], "partition", 0, 0x7FFFFFFF)
        if document.get("timestamp") is not None:
            message["timestamp"] = _timestamp(document["timestamp"])
        if document.get("headers"):
            message["headers"] = list(_headers(document["headers"]))
        return {**message, **self.fixed}


def _content(item: Any, encoding: Any) -> bytes | None:
    """Return the bytes of a field of `tail --json`."""
    if encoding not in (None, "base64"):
        raise InputError(f"unknown encoding '{encoding}'; expected base64 or none")
    if item is None:
        return None
    if encoding is not None:
        try:
            return base64.b64decode(item, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InputError(f"invalid base64: {error}") from error
    text = item if isinstance(item, str) else json_text(item)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError("unpaired surrogate, which cannot be encoded") from error


def header_name(name: str) -> str:
    """Check the name of a header: librdkafka's Python binding crashes at one that is not UTF-8."""
    try:
        if b"\0" not in name.encode():
            return name
    except UnicodeEncodeError:
        pass
    raise InputError(f"{json_text(name)} cannot be the name of a header: it must be UTF-8, without zero characters")


def _headers(items: Any) -> Iterable[tuple[str, bytes | None]]:
    if isinstance(items, dict):
        items = [{"name": name, "value": value} for name, value in items.items()]
    if not isinstance(items, list):
        raise InputError("headers must be a list of objects with name and value, or one object")
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise InputError("a header must be an object with name and value")
        yield header_name(item["name"]), _content(item.get("value"), item.get("encoding"))


def _timestamp(item: Any) -> int:
    if isinstance(item, str):
        try:
            item = round(datetime.fromisoformat(item).timestamp() * 1000)
        except (ValueError, OverflowError):
            raise InputError(f"timestamp '{item}' is not ISO 8601") from None
    return _integer(item, "timestamp", 1, 1 << 62)  # 0 means now to librdkafka


def _integer(item: Any, field: str, smallest: int, largest: int) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or not smallest <= item <= largest:
        raise InputError(f"{field} must be an integer of at least {smallest}, not {json_text(item)}")
    return item
