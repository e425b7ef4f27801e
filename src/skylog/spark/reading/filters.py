"""Narrows the ranges to read by a query's filters on topic, partition, offset and timestamp.

The narrowed ranges contain every matching row. Spark applies the filters to the rows again.
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
    """The partitions, offsets and earliest record time that the filters allow."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 2**63 - 1
        self.min_timestamp_ms: int | None = None
        self._by_column: dict[str, list[Filter]] = {"topic": [], "partition": []}

    def take(self, filters: Iterable[Filter]) -> None:
        """Add filters, combined with AND. Filters of other kinds or columns are ignored."""
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
        """Use lower bounds only: later records may have earlier times, so an upper bound gives no last offset."""
        low, _ = _bounds(each, value)
        if isinstance(low, datetime) and low.tzinfo is not None:
            low_ms = math.floor(low.timestamp() * 1000)
            self.min_timestamp_ms = max(self.min_timestamp_ms or 0, low_ms)


def _bounds(each: Filter, value: Any) -> tuple[Any, Any]:
    """Return the smallest and the largest matching value, or None for no limit."""
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
