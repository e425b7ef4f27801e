"""Comparison of recursive schemas, pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")

MAX_COMPARISONS: Final = 50_000
"""Pairs of types that are compared before two schemas count as too complex. It takes seconds."""
MAX_FORGETFUL: Final = 10_000
"""Comparisons after which verdicts are no longer forgotten during a round."""
MAX_FOUND: Final = 200
"""Differences of one pair that are kept. Types that are used twice at every level would double them each time."""


class TooComplexError(Exception):
    """The schemas need more comparisons than are allowed."""


class Pairs(Generic[Key, Found]):
    """The verdicts on pairs of types.

    While a pair is being compared, it counts as compatible, so recursive types end. A difference that is found under
    this assumption is one in any case, and its pair is incompatible for good. But a verdict without differences may
    rely on a pair that turns out to be incompatible later. Such verdicts are forgotten at once, so that all differences
    are found. In schemas with many circles this repeats too much: from then on, the first pair is compared in rounds,
    which know the incompatible pairs of the rounds before, until a round finds no other one.
    """

    def __init__(self) -> None:
        self._incompatible: dict[Key, list[Found]] = {}
        self._compatible: dict[Key, None] = {}
        self._comparisons = 0
        self._is_comparing = False

    def compare(self, pair: Key, compare: Callable[[], list[Found]]) -> list[Found]:
        """The differences of a pair: those known, or those that `compare` finds. Raises TooComplexError."""
        if not self._is_comparing:
            return self._in_rounds(pair, compare)
        if pair in self._incompatible:
            return self._incompatible[pair]
        if pair in self._compatible:
            return []
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise TooComplexError
        before = len(self._compatible)
        self._compatible[pair] = None
        found = compare()
        if found:
            relying = islice(self._compatible, before, None) if self._comparisons < MAX_FORGETFUL else (pair,)
            for each in list(relying):  # the pair is the first of them
                del self._compatible[each]
            self._incompatible[pair] = found[:MAX_FOUND]
        return found[:MAX_FOUND]

    def _in_rounds(self, pair: Key, compare: Callable[[], list[Found]]) -> list[Found]:
        self._is_comparing = True
        try:
            while True:
                known = len(self._incompatible)
                self._compatible.clear()
                found = self.compare(pair, compare)
                if found or len(self._incompatible) == known:
                    return found
        finally:
            self._is_comparing = False
