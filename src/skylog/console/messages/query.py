"""Search queries: a text in keys, values or headers, and conditions (see `filter`).

Regular expressions are not supported: a runaway one would occupy a thread, and Python cannot stop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from skylog.console.messages.filter import Predicate, parse_filter
from skylog.console.server.fields import FieldError
from skylog.message_document import AnyMessage

__all__ = ["PLACES", "Predicate", "Query", "parse_places"]

PLACES: Final = ("key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Query:
    """`text` is the user's input; one like `$.user.id=7` is a condition. `places` is a subset of PLACES."""

    text: str
    places: tuple[str, ...] = PLACES
    is_case_sensitive: bool = False
    conditions: str = ""

    def predicate(self) -> Predicate:
        """Return a function that checks whether a message matches. Raises FieldError for what is no condition."""
        tests = [parse_filter(self.conditions)] if self.conditions else []
        if self.text.startswith(("$.", "$[")):
            tests.append(parse_filter(self.text))
        elif self.text:
            tests.append(self._text_test())
        return tests[0] if len(tests) == 1 else lambda message: all(test(message) for test in tests)

    def _text_test(self) -> Predicate:
        is_in = _text_predicate(self.text, self.is_case_sensitive)
        in_key, in_value, in_headers = (place in self.places for place in PLACES)

        def matches(message: AnyMessage) -> bool:
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

        return matches


def parse_places(texts: Iterable[str]) -> tuple[str, ...]:
    places = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    for place in places:
        if place not in PLACES:
            raise FieldError(f"'in' must be some of {', '.join(PLACES)}, not '{place}'")
    return tuple(places) or PLACES


def _text_predicate(text: str, is_case_sensitive: bool) -> Callable[[bytes | None], bool]:
    if is_case_sensitive:
        exact = text.encode(errors="surrogateescape")
        return lambda data: data is not None and exact in data
    if text.isascii():
        lower = text.lower().encode()
        return lambda data: data is not None and lower in data.lower()
    folded = text.casefold()
    return lambda data: data is not None and folded in data.decode(errors="replace").casefold()
