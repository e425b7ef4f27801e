"""JSON as text: reads it with the place of a mistake, writes it without white space."""

from __future__ import annotations

import json
from math import isinf
from typing import Any, Never

from skylog.schemas.schema import InvalidSchema


def load_json(text: str, origin: str = "") -> Any:
    """The JSON of a text. Raises InvalidSchema with line and column, after `origin`."""

    def refuse(constant: str) -> Never:
        raise InvalidSchema(f"{origin}{constant} is not JSON")

    def finite(number: str) -> float:
        found = float(number)
        return refuse(f"{number}, which is too large a number,") if isinf(found) else found

    try:
        found = json.loads(text, parse_constant=refuse, parse_float=finite)
        if "\\ud" in text or "\\uD" in text:  # half of a pair has no bytes in UTF-8, so it could not be stored
            compact_json(found).encode()
        return found
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"{origin}not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeEncodeError:
        raise InvalidSchema(f"{origin}a text has half of a surrogate pair, which is no character") from None
    except ValueError as error:  # a number with thousands of digits
        raise InvalidSchema(f"{origin}{error}") from None


def compact_json(node: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def pointer(path: tuple[str, ...]) -> str:
    """A JSON pointer."""
    return "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)
