"""JSON as text: reads it with the place of a mistake, writes it without white space."""

from __future__ import annotations

import json
from typing import Any, Never

from skylog.schemas.schema import InvalidSchema


def load_json(text: str, origin: str = "") -> Any:
    """The JSON of a text. Raises InvalidSchema with line and column, after `origin`."""

    def refuse(constant: str) -> Never:
        raise InvalidSchema(f"{origin}{constant} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"{origin}not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None


def compact_json(node: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def pointer(path: tuple[str, ...]) -> str:
    """A JSON pointer."""
    return "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)
