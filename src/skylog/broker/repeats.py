"""What a request names several times is answered once.

A name takes a few bytes in a request and may stand for kilobytes in the response, so repeating it must not repeat the
answer. Kafka's clients put every answer into a map by name and expect no more than one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Row = TypeVar("Row")


def once(names: Iterable[Name]) -> list[Name]:
    """The names in the order of their first mention."""
    return list(dict.fromkeys(names))


def once_by_topic(topics: Iterable[tuple[str, Iterable[Name]]]) -> dict[str, list[Name]]:
    """Topics with the partitions that all mentions of a topic name, each once."""
    merged: dict[str, dict[Name, None]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return {topic: list(partitions) for topic, partitions in merged.items()}
