"""Foreign bytes made fit to print. What a message holds is hostile: it may try to drive the reader's terminal.

Control characters become visible escapes, among them those that turn the direction of writing and the line
separators of Unicode, so that one message is one line and looks like what it is.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

_DIRECTIONS_AND_SEPARATORS: Final = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
_CONTROLS: Final = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f{_DIRECTIONS_AND_SEPARATORS}\ud800-\udfff]")
# Inside JSON everything below 0x20 is escaped already, and the line breaks of an indented text are our own.
_CONTROLS_IN_JSON: Final = re.compile(f"[\x7f-\x9f{_DIRECTIONS_AND_SEPARATORS}\ud800-\udfff]")
MAX_DEPTH: Final = 200  # of what is printed again as JSON: Python writes nested documents by recursion
_NAMED: Final = {"\n": "\\n", "\r": "\\r"}


class NoJsonError(ValueError):
    """Text that is no JSON document, or none that could be printed again."""


def escape_controls(text: str) -> str:
    """`text` on one line, without anything that a terminal would obey; a tab is let through."""
    return text if text.isprintable() else _CONTROLS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def as_text(data: bytes) -> str:
    """Bytes as one line: UTF-8 where it is that, `\\xNN` for each byte that is not."""
    return escape_controls(data.decode("utf-8", errors="backslashreplace"))


def json_text(document: Any, indent: int | None = None) -> str:
    """JSON with every control character escaped. Raises ValueError for what JSON has no word for."""
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    return text if text.isprintable() else _CONTROLS_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def indentation_length(document: Any, enough: int) -> int:
    """How much longer `json_text` is with an indent of 2 than without one; counting ends at `enough`.

    Each item of a list or an object begins a line, and so does the bracket behind the last.
    """
    length, indent = 0, 0
    level = [document]
    while level and length < enough:
        filled = [item for item in level if isinstance(item, dict | list) and item]
        length += len(filled) * (1 + indent)
        indent += 2
        length += sum(len(item) * (1 + indent) + (len(item) if isinstance(item, dict) else 0) for item in filled)
        level = [child for item in filled for child in (item.values() if isinstance(item, dict) else item)]
    return length


def parse_json(text: str) -> Any:
    """The document that `text` is. Raises NoJsonError, also for what Python reads but JSON does not know."""
    try:
        document = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise NoJsonError(str(error)) from error
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(document, MAX_DEPTH):
        raise NoJsonError(f"it is nested more than {MAX_DEPTH} deep")
    return document


def _is_deeper(document: Any, depth: int) -> bool:
    level = [document]
    for _ in range(depth):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [child for children in inner for child in children]
    return any(isinstance(item, dict | list) for item in level)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{digits} is too large")
    return number


def iso_time(timestamp_ms: int) -> str | None:
    """A timestamp in UTC, as ISO 8601 to the millisecond; None where there is none or no calendar has it."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
