"""Removes repeated names from a request, so that each appears once in the response.

A name takes a few bytes in a request and may cause kilobytes in the response, so a small request could cause a huge
response. Kafka's clients put the results into a map by name and expect at most one of each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Row = TypeVar("Row")


def unique(names: Iterable[Name]) -> list[Name]:
    """Return the names without repetitions, in the order in which they first appear."""
    return list(dict.fromkeys(names))


def unique_by_topic(topics: Iterable[tuple[str, Iterable[Name]]]) -> dict[str, list[Name]]:
    """Merge repeated topics. Return each topic with its partitions, without repetitions."""
    merged: dict[str, dict[Name, None]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return {topic: list(partitions) for topic, partitions in merged.items()}
