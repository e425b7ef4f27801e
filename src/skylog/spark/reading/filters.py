"""Filters of a query that narrow what is read: on topic, partition, offset and timestamp.

Ranges become smaller, never so small that a row is missed; Spark applies the filters to the rows once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from skylog.model import TopicPartition

_COMPARISONS: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda value, limit: value == limit,
    EqualNullSafe: lambda value, limit: value == limit,
    In: lambda value, limits: value in limits,
    GreaterThan: lambda value, limit: value > limit,
    GreaterThanOrEqual: lambda value, limit: value >= limit,
    LessThan: lambda value, limit: value < limit,
    LessThanOrEqual: lambda value, limit: value <= limit,
}


class RangeFilter:
    """What the filters leave: of the partitions, of their offsets, and the earliest time of a record."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 2**63 - 1
        self.min_timestamp_ms: int | None = None
        self._by_column: dict[str, list[Filter]] = {"topic": [], "partition": []}

    def take(self, filters: Iterable[Filter]) -> None:
        """Note the filters, all of which hold for every wanted row. Those of other kinds change nothing."""
        for each in filters:
            if type(each) not in _COMPARISONS or len(each.attribute) != 1:  # type: ignore[attr-defined]  # all have it
                continue
            column, value = each.attribute[0], each.value  # type: ignore[attr-defined]
            if column in self._by_column:
                self._by_column[column].append(each)
            elif column == "offset":
                self._take_offset(each, value)
            elif column == "timestamp":
                self._take_timestamp(each, value)

    def accepts(self, key: TopicPartition) -> bool:
        return all(
            _COMPARISONS[type(each)](value, each.value)  # type: ignore[attr-defined]
            for column, value in key._asdict().items()
            for each in self._by_column[column]
        )

    def _take_offset(self, each: Filter, value: Any) -> None:
        low, high = _bounds(each, value)
        if low is not None:
            self.start_offset = max(self.start_offset, low)
        if high is not None:
            self.end_offset = min(self.end_offset, high + 1)

    def _take_timestamp(self, each: Filter, value: Any) -> None:
        """Only a lower bound helps: later records may carry earlier times, so nothing says where the last one is."""
        low, _ = _bounds(each, value)
        if isinstance(low, datetime) and low.tzinfo is not None:
            low_ms = math.floor(low.timestamp() * 1000)
            self.min_timestamp_ms = max(self.min_timestamp_ms or 0, low_ms)


def _bounds(each: Filter, value: Any) -> tuple[Any, Any]:
    """The least and the greatest value that can pass, or None where there is no such limit."""
    match each:
        case EqualTo() | EqualNullSafe():
            return value, value
        case In():
            known = [item for item in value if item is not None]
            return (min(known), max(known)) if known else (None, None)
        case GreaterThan() | GreaterThanOrEqual():
            return value, None
        case _:
            return None, value
