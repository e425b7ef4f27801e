"""Sets of partitions, by topic id: the unit of assignments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id. No topic has an empty set, and nobody changes a value, so it can be shared."""

NONE: Final[Partitions] = {}


def partitions_of(rows: Iterable[tuple[UUID, Iterable[int]]]) -> Partitions:
    """Return the partitions in `rows`, in which a topic may be repeated."""
    sets: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in rows:
        both = sets.get(topic_id, frozenset()) | frozenset(numbers)
        if both:
            sets[topic_id] = both
    return sets


def partitions_of_pairs(pairs: Iterable[tuple[UUID, int]]) -> Partitions:
    """Return the partitions that are given one by one."""
    topics: defaultdict[UUID, set[int]] = defaultdict(set)
    for topic_id, number in pairs:
        topics[topic_id].add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}


def common(one: Partitions, other: Partitions) -> Partitions:
    """Return the partitions that are in both."""
    return _where(one, lambda topic_id, numbers: numbers & other.get(topic_id, frozenset()))


def without(one: Partitions, other: Partitions) -> Partitions:
    """Return the partitions of `one` that are not in `other`."""
    return _where(one, lambda topic_id, numbers: numbers - other.get(topic_id, frozenset()))


def union(one: Partitions, other: Partitions) -> Partitions:
    if not other:
        return one
    return partitions_of((*one.items(), *other.items()))


def includes(one: Partitions, other: Partitions) -> bool:
    """Return whether all partitions of `other` are in `one`."""
    return all(numbers <= one.get(topic_id, frozenset()) for topic_id, numbers in other.items())


def overlap(one: Partitions, other: Partitions) -> bool:
    """Return whether a partition is in both."""
    return any(not numbers.isdisjoint(other.get(topic_id, frozenset())) for topic_id, numbers in one.items())


def size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def each(partitions: Partitions) -> Iterator[tuple[UUID, int]]:
    for topic_id, numbers in partitions.items():
        for number in numbers:
            yield topic_id, number


def _where(one: Partitions, kept: Callable[[UUID, frozenset[int]], frozenset[int]]) -> Partitions:
    pairs = ((topic_id, kept(topic_id, numbers)) for topic_id, numbers in one.items())
    return {topic_id: numbers for topic_id, numbers in pairs if numbers}
