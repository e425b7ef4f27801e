"""Lays out stored JSON without rewriting it: only the blanks between tokens change.

Numbers keep their digits (`1.10`, `1e2`), strings their escapes, and objects all their keys, in order and repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from skylog.printable import compact_json, json_tokens

ONE_LINE: Final = 80
MAX_INDENT_GROWTH: Final = 3  # the indentation is at most this many times as long as the compact text
_INDENT: Final = "  "


class StoredJson:
    """A JSON document as it is stored."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def encode(document: Any) -> bytes:
    """Encode a document of a page as JSON. Stored JSON is embedded unchanged, apart from blanks."""
    return orjson.dumps(document, default=_fragment)


def _fragment(value: Any) -> orjson.Fragment:
    if isinstance(value, StoredJson):
        return orjson.Fragment(compact_json(value.text))
    raise TypeError(f"{type(value).__name__} is not JSON")


def pretty(text: str) -> str:
    """Return a JSON document with a line for each item, or on one line if it is short.

    It stays on one line too if most of it would be indentation, as with deep nesting.
    """
    tokens = json_tokens(text)
    length = sum(map(len, tokens))
    if length <= ONE_LINE:
        one_line = _spaced(tokens)
        if len(one_line) <= ONE_LINE:
            return one_line
    lines: list[str] = []
    limit = length * (1 + MAX_INDENT_GROWTH)
    for line in _lines(tokens):
        limit -= len(line) + 1
        if limit < 0:
            return "".join(tokens)
        lines.append(line)
    return "\n".join(lines)


def _spaced(tokens: list[str]) -> str:
    """Return short JSON on one line: `{ "a": [ 1 ] }`."""
    text = ""
    for before, token in zip(["", *tokens], tokens, strict=False):
        is_empty = before + token in ("{}", "[]")
        is_apart = before in ("{", "[", ",", ":") or token in ("}", "]")
        text += f" {token}" if is_apart and not is_empty else token
    return text


def _lines(tokens: list[str]) -> Iterator[str]:
    depth = 0
    line = ""
    for before, token in zip(["", *tokens], tokens, strict=False):
        if token in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                yield line
                line = _INDENT * depth
            line += token
        elif before in ("{", "[", ","):
            yield line
            line = _INDENT * depth + token
        else:
            line += f" {token}" if before == ":" else token
        if token in ("{", "["):
            depth += 1
    yield line
