"""Sorts the rows of a list by the column that a visitor chooses. `sort=lag` is ascending, `sort=-lag` descending."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from skylog.console.server.fields import Fields

T = TypeVar("T")

Columns = Mapping[str, Callable[[T], Any]]
"""The value of each column of a row, None if it is not known."""


def sort_rows(rows: Iterable[T], fields: Fields, columns: Columns[T], default: str) -> tuple[list[T], str]:
    """Return the sorted rows and the order. Rows without a value come last, equal ones stay in their order."""
    order = fields.choice("sort", [sign + name for name in columns for sign in ("", "-")], default)
    value = columns[order.removeprefix("-")]
    known: list[tuple[Any, T]] = []
    unknown: list[T] = []
    for row in rows:
        found = value(row)
        if found is None:
            unknown.append(row)
        else:
            known.append((found, row))
    known.sort(key=lambda pair: pair[0], reverse=order.startswith("-"))
    return [row for _, row in known] + unknown, order
