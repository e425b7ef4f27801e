"""The statistics of a data file, from the footer that Parquet has written: readers skip files by them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow.parquet as pq

_COLUMNS: Final = 32
_LENGTH: Final = 32


def statistics(footer: pq.FileMetaData) -> str:
    """Return Delta's JSON: the number of rows and, for the first columns, nulls and, if known, minimum and maximum."""
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for index in range(min(footer.num_columns, _COLUMNS) if groups else 0):
        name = groups[0].column(index).path_in_schema
        found = [group.column(index).statistics for group in groups]
        if "." in name or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        bounds = [each for each in found if each.has_min_max]
        if len(bounds) < sum(each.num_values > 0 for each in found) or not bounds:
            continue
        if (least := _least(_known(min, bounds, "min"))) is not None:
            smallest[name] = least
        if (most := _most(_known(max, bounds, "max"))) is not None:
            largest[name] = most
    return json.dumps({"numRecords": footer.num_rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls})


def _known(choose: Callable[[Iterable[Any]], Any], groups: Sequence[Any], bound: str) -> Any:
    """Return the bound of all groups, or None for a time beyond the years 1 to 9999, which Python does not have."""
    try:
        return choose(getattr(group, bound) for group in groups)
    except (OverflowError, ValueError):
        return None


def _least(value: Any) -> Any:
    return value[:_LENGTH] if isinstance(value, str) else _exact(value)


def _most(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LENGTH else None
    return _exact(value)


def _exact(value: Any) -> Any:
    """Return the JSON form, or None for types without an order that all readers share, such as floats with NaN."""
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, int) else None
