"""The fields of a request, from its query, a form or a JSON document, by name and type."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

import orjson
from starlette.requests import Request

from skylog.errors import SkylogError
from skylog.units import duration_ms

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_FIELDS: Final = 10_000
FORM: Final = "skylog_form"
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


class FieldError(SkylogError):
    """A field is missing or has an invalid value."""


class Fields:
    """Names and texts. An empty text counts as missing."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def text(self, name: str, default: str | None = None) -> str:
        """Return the text, unstripped. Raises FieldError if it is missing and there is no default."""
        found = self._values.get(name, [""])[-1] or default
        if found is None:
            raise FieldError(f"'{name}' is missing")
        return found

    def all(self, name: str) -> Sequence[str]:
        return [value for value in self._values.get(name, ()) if value]

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the texts of all fields whose names begin with `prefix`, by the rest of the name."""
        return {name[len(prefix) :]: texts[-1] for name, texts in self._values.items() if name.startswith(prefix)}

    def has(self, name: str) -> bool:
        return bool(self.all(name))

    def integer(self, name: str, default: int | None = None, *, low: int | None = None, high: int | None = None) -> int:
        text = self.text(name, None if default is None else str(default)).strip()
        try:
            number = int(text)
        except ValueError:
            raise FieldError(f"'{name}' must be a whole number, not '{text}'") from None
        if not (_SMALLEST if low is None else low) <= number <= (_LARGEST if high is None else high):
            if not _SMALLEST <= number <= _LARGEST:
                raise FieldError(f"'{name}' must be a number within 64 bits, not '{text}'")
            limits = f"at least {low}" if high is None else f"between {low} and {high}"
            raise FieldError(f"'{name}' must be {limits}, not {number}")
        return number

    def optional_integer(self, name: str, *, low: int | None = None, high: int | None = None) -> int | None:
        return self.integer(name, low=low, high=high) if self.has(name) else None

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        text = self.text(name, default)
        if text not in choices:
            raise FieldError(f"'{name}' must be one of {', '.join(choices)}, not '{text}'")
        return text

    def time_ms(self, name: str) -> int:
        """Parse a time in ISO 8601, in UTC unless it names a zone, or in milliseconds since 1970, or `-1h` for ago."""
        text = self.text(name).strip()
        ago_ms = 0 if text == "now" else duration_ms(text.removeprefix("-"))
        if ago_ms is not None:
            return max(time.time_ns() // 1_000_000 - ago_ms, 0)
        if text.isdecimal() and len(text) < 19:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise FieldError(f"'{name}' must be a time such as 2026-05-01T12:00 or -1h, not '{text}'") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(int(moment.timestamp() * 1000), 0)


def query(request: Request) -> Fields:
    return Fields(request.query_params.multi_items())


async def body(request: Request) -> Fields:
    """Parse the fields of a form, or of a JSON object whose values are strings, numbers, booleans or lists of them.

    They stay in the request's scope, so that a form that is rejected can be shown again as it was filled in.
    """
    fields = await _parse_body(request)
    request.scope[FORM] = fields
    return fields


async def _parse_body(request: Request) -> Fields:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise FieldError(f"the request is larger than {MAX_BODY_BYTES} bytes")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            return Fields(_pairs(orjson.loads(data)))
        return Fields(
            parse_qsl(data.decode(), keep_blank_values=True, strict_parsing=bool(data), max_num_fields=MAX_FIELDS)
        )
    except ValueError as error:
        raise FieldError(f"the request cannot be parsed: {error}") from error


def _pairs(document: Any) -> Iterable[tuple[str, str]]:
    if not isinstance(document, Mapping):
        raise FieldError("expected a JSON object")
    for name, value in document.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, bool):
                yield name, "on" if each else ""
            elif isinstance(each, str | int | float):
                yield name, str(each)
            elif each is not None:
                raise FieldError(f"'{name}' must be a string, a number or a list of them")
