"""Filters of messages: conditions on keys, values, headers and JSON fields, joined by AND.

    key = order-7 AND $.user.id > 7 AND headers.source contains "web shop"

A condition is a field, an operator (`=`, `!=`, `<`, `>` or `contains`) and a text, quoted if it has blanks at its ends
or looks like a part of a filter: what another language would read as an operator is an error, not a text. Fields are
`key`, `value`, `headers.NAME`, `$.a.b[0]` in JSON values and `key$.a` in JSON keys. Numbers compare as numbers. A
message without the field matches no condition, not even `!=`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import orjson

from skylog.console.server.fields import FieldError
from skylog.message_document import AnyMessage

Predicate = Callable[[AnyMessage], bool]

EXAMPLE: Final = "key = order-7 AND $.user.id > 7"
_AND: Final = re.compile(r'\s+AND(?:\s+|$)(?=(?:[^"]*"[^"]*")*[^"]*$)')
_CONDITION: Final = re.compile(r"(?P<field>\S+?)\s*(?P<operator>!=|=|<|>|\scontains\s)\s*(?P<text>.*)", re.DOTALL)
_PATH: Final = re.compile(r"(?P<place>key|value)?\$(?P<steps>(?:\.[^.=<>!\[\]\s]+|\[\d{1,9}\])+)")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_OTHER_OPERATOR: Final = re.compile(r"[=<>!~]+")
_OTHER_WORD: Final = re.compile(
    r"\s(?P<word>and|or|&&|\|\|)(?:\s+|(?=\$))(?:not\s+)?(?:key|value|headers\.|(?:key|value)?\$)\S*?\s*(?:[=<>!~]|\scontains\s)",
    re.IGNORECASE,
)
_HEADER: Final = "headers."
_PLACES: Final = ("key", "value")

Find = Callable[[AnyMessage], list[Any]]
"""Returns the values of a field in a message: JSON types, or texts."""


class Condition(NamedTuple):
    find: Find
    matches: Callable[[Any], bool]

    def __call__(self, message: AnyMessage) -> bool:
        return any(map(self.matches, self.find(message)))


def parse_filter(text: str) -> Predicate:
    """Return a function that checks a message. Raises FieldError with the part that is not a condition."""
    conditions = [_condition(part.strip()) for part in _AND.split(text.strip())]
    return lambda message: all(condition(message) for condition in conditions)


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise FieldError(
            f"'{text}' is not a condition: expected a field, =, !=, <, > or contains, and a text: {EXAMPLE}"
        )
    operator, compared = match["operator"].strip(), match["text"].strip()
    find = _field(match["field"])
    _check_unquoted(operator, compared)
    return Condition(find, _test(operator, _unquoted(compared)))


def _check_unquoted(operator: str, text: str) -> None:
    """Raise FieldError for a text that is more likely a filter of another language: it would silently match nothing."""
    if other := _OTHER_OPERATOR.match(text):
        raise FieldError(
            f"'{operator}{other[0]}' is not an operator: use =, !=, <, > or contains, and quote a text that "
            f"begins with '{text[0]}'"
        )
    if not text.startswith('"') and (join := _OTHER_WORD.search(text)):
        word = join["word"]
        if word == "AND":
            raise FieldError("AND needs a blank on both sides")
        raise FieldError(f"'{word}' does not join conditions: use AND, and quote a text that looks like one")
    if len(text) > 1 and text[0] == text[-1] == "'":
        raise FieldError(f'{text} is in single quotes: use double ones, or "{text}" for a text with single quotes')


def _unquoted(text: str) -> str:
    if text.startswith('"'):
        try:
            return str(orjson.loads(text))
        except orjson.JSONDecodeError:
            raise FieldError(f"{text} is not a quoted text") from None
    if not text:
        raise FieldError('a condition ends without a text; "" is the empty one')
    return text


def _field(name: str) -> Find:
    if name in _PLACES:
        return lambda message: _texts(message.key if name == "key" else message.value)
    if name.startswith(_HEADER) and len(name) > len(_HEADER):
        wanted = name.removeprefix(_HEADER)
        return lambda message: [
            text for header, content in message.headers if header == wanted for text in _texts(content)
        ]
    path = _PATH.fullmatch(name)
    if path is None:
        raise FieldError(f"'{name}' is not a field: use key, value, headers.NAME or a JSON field such as $.user.id")
    steps = [step or int(index) for step, index in _STEP.findall(path["steps"])]
    is_key = path["place"] == "key"
    return lambda message: _at(message.key if is_key else message.value, steps)


def _texts(data: bytes | None) -> list[Any]:
    return [] if data is None else [data.decode(errors="replace")]


def _at(data: bytes | None, steps: list[str | int]) -> list[Any]:
    """Return the JSON value at a path, or nothing."""
    try:
        found: Any = orjson.loads(data or b"")
        for step in steps:
            found = found[step]
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return []
    return [found]


def _test(operator: str, text: str) -> Callable[[Any], bool]:
    number = _number(text)
    match operator:
        case "=":
            return lambda found: _equals(found, text, number)
        case "!=":
            return lambda found: not _equals(found, text, number)
        case "contains":
            lower = text.lower()
            return lambda found: lower in _written(found).lower()
        case "<":
            return lambda found: _compare(found, text, number) < 0
    return lambda found: _compare(found, text, number) > 0


def _equals(found: Any, text: str, number: Decimal | None) -> bool:
    if number is not None and isinstance(found, int | float) and not isinstance(found, bool):
        return Decimal(str(found)) == number
    return _written(found) == text


def _compare(found: Any, text: str, number: Decimal | None) -> int:
    """Compare as numbers if both are, otherwise as texts; 0 also for a number and a text that is none."""
    if number is not None:
        other = None if isinstance(found, bool) else _number(str(found))
        return 0 if other is None else (other > number) - (other < number)
    written = _written(found)
    return (written > text) - (written < text)


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _written(found: Any) -> str:
    return found if isinstance(found, str) else orjson.dumps(found).decode()
