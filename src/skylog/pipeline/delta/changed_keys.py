"""The keys of the rows of an upsert. If they are few, one Spark job reads them, and the driver does the rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import BinaryType, BooleanType, DateType, IntegralType, StringType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NUMBERS: Final = (BooleanType, DateType, IntegralType)
_COMPARABLE: Final = (*_NUMBERS, BinaryType, StringType)
_FEW_NUMBERS: Final = 200_000
_FEW_TEXTS: Final = 10_000  # a text may be long
_COUNT: Final = "count(1)"  # no column of a table has such a name


class WrongKey(NamedTuple):
    """A key that rows of an upsert must not have: one of its values is None, or several `rows` have it."""

    values: tuple[Any, ...]
    rows: int


class ChangedKeys:
    """The key columns of `changes`, whose first query reads all rows.

    `few` has the keys if they are few and can be compared without Spark, and is None otherwise.
    """

    def __init__(self, changes: DataFrame, key: Sequence[str]) -> None:
        self.columns = tuple(key)
        self.rows = changes.select(*map(_column, key))
        self.few = self._few()

    @property
    def are_numbers(self) -> bool:
        """Whether a key takes a few bytes."""
        return all(isinstance(each.dataType, _NUMBERS) for each in self.rows.schema)

    def wrong(self) -> WrongKey | None:
        """Return a key that is not complete or not unique. None if there is none."""
        if self.few is None:
            *_, found = self._summary
            return None if found is None else WrongKey(tuple(found)[:-1], found[-1])
        names = [str(number) for number in range(len(self.columns))]  # a column may have the name of the count
        counted = self.few.rename_columns(names).group_by(names).aggregate([([], "count_all")])
        is_wrong = pc.greater(counted["count_all"], 1)
        for name in names:
            is_wrong = pc.or_(is_wrong, counted[name].is_null())
        rows = counted.filter(is_wrong).slice(0, 1).to_pylist()
        return WrongKey(tuple(rows[0][name] for name in names), rows[0]["count_all"]) if rows else None

    def bounds(self) -> tuple[Any, Any]:
        """Return the least and the greatest value of the first column. None for both if there are no rows."""
        if self.few is None:
            least, most, _ = self._summary
            return least, most
        found = pc.min_max(self.few[self.columns[0]]).as_py()
        return found["min"], found["max"]

    def _few(self) -> pa.Table | None:
        if not all(isinstance(each.dataType, _COMPARABLE) for each in self.rows.schema):
            return None
        most = _FEW_NUMBERS if self.are_numbers else _FEW_TEXTS
        found = self.rows.limit(most + 1).toArrow()
        return found if found.num_rows <= most else None

    @cached_property
    def _summary(self) -> Any:
        """The bounds of the first column, and a wrong key with its count."""
        columns = [_column(name) for name in self.columns]
        count = _column(_COUNT)
        is_wrong = count > 1
        for column in columns:
            is_wrong = is_wrong | column.isNull()
        wrong = F.first(F.when(is_wrong, F.struct(*columns, count)), ignorenulls=True)
        counted = self.rows.groupBy(*columns).agg({"*": "count"})
        return counted.agg(F.min(columns[0]), F.max(columns[0]), wrong).collect()[0]


def _column(name: str) -> Column:
    return F.col(f"`{name}`")
