"""What a search looks for: a text in keys, values or headers, or a field of JSON values.

There are no regular expressions: one that explodes would keep a thread, and Python cannot end it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from skylog.client import Message
from skylog.console.fields import FieldError

PLACES: Final = ("key", "value", "headers")
Test = Callable[[Message], bool]

_PATH: Final = re.compile(r"\$((?:\.[^.=\[\]]+|\[\d{1,9}\])+)=(.*)", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.=\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Query:
    """`text` as it was typed; `$.user.id=7` means the JSON field of that path. `places` are some of PLACES."""

    text: str
    places: tuple[str, ...] = PLACES
    minds_case: bool = False

    def test(self) -> Test:
        """What tells whether a message is found."""
        if self.text.startswith(("$.", "$[")):
            return _field_test(self.text)
        is_in = _text_test(self.text, self.minds_case)
        in_key, in_value, in_headers = (place in self.places for place in PLACES)

        def test(message: Message) -> bool:
            return (
                (in_value and is_in(message.value))
                or (in_key and is_in(message.key))
                or (
                    in_headers
                    and any(
                        is_in(name.encode(errors="surrogatepass")) or is_in(value) for name, value in message.headers
                    )
                )
            )

        return test


def read_places(texts: Iterable[str]) -> tuple[str, ...]:
    places = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    for place in places:
        if place not in PLACES:
            raise FieldError(f"'in' must be some of {', '.join(PLACES)}, not '{place}'")
    return tuple(places) or PLACES


def _text_test(text: str, minds_case: bool) -> Callable[[bytes | None], bool]:
    if minds_case:
        exact = text.encode(errors="surrogateescape")
        return lambda data: data is not None and exact in data
    if text.isascii():
        lower = text.lower().encode()
        return lambda data: data is not None and lower in data.lower()
    folded = text.casefold()
    return lambda data: data is not None and folded in data.decode(errors="replace").casefold()


def _field_test(text: str) -> Test:
    """`$.a.b[0]=x`: the field is the text x, or the number, truth value or null that x is in JSON."""
    match = _PATH.fullmatch(text)
    if match is None:
        raise FieldError(f"'{text}' is no field of JSON: write such as $.user.id=7, or $.tags[0]=new")
    steps = [name or int(index) for name, index in _STEP.findall(match[1])]
    wanted = match[2]
    try:
        literal = orjson.loads(wanted)
    except orjson.JSONDecodeError:
        literal = wanted

    def test(message: Message) -> bool:
        value = message.value
        if not value:
            return False
        try:
            found: Any = orjson.loads(value)
            for step in steps:
                found = found[step]
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
            return False
        return found == wanted or (type(found) is type(literal) and bool(found == literal))

    return test
