"""Comparison of recursive schemas, pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class Pairs(Generic[Key, Found]):
    """The verdicts on pairs of types, each found once.

    While a pair is being compared, it counts as compatible, so recursive types end. If it turns out not to be,
    verdicts that were found meanwhile may have relied on it and are forgotten.
    """

    def __init__(self) -> None:
        self._found: dict[Key, list[Found]] = {}

    def compare(self, pair: Key, compare: Callable[[], list[Found]]) -> list[Found]:
        """The differences of a pair: those known, or those that `compare` finds."""
        if pair not in self._found:
            before = len(self._found)
            self._found[pair] = []
            found = compare()
            if found:
                self._forget_compatible(since=before)
            self._found[pair] = found
        return self._found[pair]

    def _forget_compatible(self, since: int) -> None:
        for pair in list(islice(self._found, since, None)):
            if not self._found[pair]:
                del self._found[pair]
