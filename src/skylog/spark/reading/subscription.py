"""Selects the partitions to read: the options assign, subscribe and subscribePattern."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import orjson

from skylog.client import TopicNotFoundError
from skylog.model import TopicPartition
from skylog.spark.errors import OptionError
from skylog.spark.reading.options import ReadOptions


def chosen_partitions(options: ReadOptions, topics: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    """Return the existing partitions that the options select.

    Raises TopicNotFoundError if a named topic does not exist. A pattern may match no topic.
    """
    if options.assign is not None:
        return _assigned(options.assign, topics)
    if options.subscribe is not None:
        names = [name.strip() for name in options.subscribe.split(",") if name.strip()]
        for name in names:
            if name not in topics:
                raise TopicNotFoundError(name, topics)
    else:
        pattern = _pattern(options.subscribe_pattern or "")
        names = [name for name in topics if pattern.fullmatch(name)]
    return [TopicPartition(name, number) for name in sorted(set(names)) for number in topics[name]]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text.strip())
    except re.error as error:
        raise OptionError(f"subscribePattern={text}: {error}") from None


def _assigned(text: str, topics: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    try:
        assigned = {
            TopicPartition(name, int(number)) for name, numbers in orjson.loads(text).items() for number in numbers
        }
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f'assign: expected JSON like {{"topic": [0, 1]}}, found {text}') from None
    for name, number in sorted(assigned):
        if name not in topics:
            raise TopicNotFoundError(name, topics)
        if number not in topics[name]:
            raise OptionError(
                f"assign: topic '{name}' has no partition {number}; it has {len(topics[name])} partitions"
            )
    return sorted(assigned)
