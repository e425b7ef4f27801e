"""Makes untrusted bytes printable. Message content is hostile: it may contain terminal control sequences.

Control characters become visible escapes, including Unicode's bidirectional controls and line separators. So one
message is one line and displays as what it is.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

_DIRECTIONS_AND_SEPARATORS: Final = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
_CONTROLS: Final = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f{_DIRECTIONS_AND_SEPARATORS}\ud800-\udfff]")
# JSON already escapes everything below 0x20, and the line breaks of indented output are our own.
_CONTROLS_IN_JSON: Final = re.compile(f"[\x7f-\x9f{_DIRECTIONS_AND_SEPARATORS}\ud800-\udfff]")
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
MAX_DEPTH: Final = 200  # of documents that are printed again as JSON: Python writes nested documents recursively
_NAMED: Final = {"\n": "\\n", "\r": "\\r"}


class NoJsonError(ValueError):
    """Text that is not a JSON document, or one that cannot be printed again."""


def escape_controls(text: str) -> str:
    """Return `text` on one line, with everything that controls a terminal escaped; tabs are kept."""
    return text if text.isprintable() else _CONTROLS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def as_text(data: bytes) -> str:
    """Decode bytes to one line: UTF-8, with `\\xNN` for each invalid byte."""
    return escape_controls(data.decode("utf-8", errors="backslashreplace"))


def json_text(document: Any, indent: int | None = None) -> str:
    """Encode as JSON with every control character escaped. Raises ValueError for values that JSON cannot express."""
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    return text if text.isprintable() else _CONTROLS_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def json_tokens(text: str) -> list[str]:
    """Return the tokens of a JSON document as they are written, with every control character escaped."""
    tokens: list[str] = _JSON_TOKEN.findall(text)
    if text.isprintable():
        return tokens
    return [_CONTROLS_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", token) for token in tokens]


def compact_json(text: str) -> str:
    """Return a JSON document on one line. Numbers, escapes and repeated keys stay as they are written."""
    return "".join(json_tokens(text))


def parse_json(text: str) -> Any:
    """Parse `text`. Raises NoJsonError, also for extensions that Python accepts but JSON does not, such as NaN."""
    try:
        document = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise NoJsonError(str(error)) from error
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(document, MAX_DEPTH):
        raise NoJsonError(f"nested more than {MAX_DEPTH} levels deep")
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
    """Format a timestamp as ISO 8601 in UTC, to the millisecond; None for a negative or unrepresentable one."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
