"""From records of a changelog to rows: what a record says of its row, and which rows there are after all of them.

the row's fields    by the schema that is given
_corrupt            the text of a value that is no such row; the row is there, its fields as far as they parse
_key                the record's key
_partition, _offset, _timestamp    which record it was that made the row what it is
_deleted            in changes only: the record has no value, so the row is gone
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls them

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT: Final = "_corrupt"
_DELETED: Final = "_deleted"


def changes(records: DataFrame, schema: str) -> DataFrame:
    """What records with JSON values say, in rows of `schema` (DDL). One row for each record."""
    text = F.col("value").cast("string")
    row = F.from_json(text, f"{schema}, {_CORRUPT} STRING", {"columnNameOfCorruptRecord": _CORRUPT})
    parsed = records.withColumn("_row", row)
    fields = [name for name in parsed.select("_row.*").columns if name != _CORRUPT]
    is_no_row = F.col("value").isNotNull() & F.col("_row").isNull()  # JSON's null, and empty values
    return parsed.select(
        *(F.col(f"_row.`{name}`").alias(name) for name in fields),
        F.when(is_no_row, text).otherwise(F.col(f"_row.{_CORRUPT}")).alias(_CORRUPT),
        F.col("key").alias("_key"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("value").isNull().alias(_DELETED),
    )


def materialize(changed: DataFrame) -> DataFrame:
    """The rows that are there after all `changed`: the last of each key, without those that were deleted.

    In a partition the offset says what is last. A key that lies in several partitions, because the topic has been given
    more of them, has the row of the partition whose last record is the younger. Records without a key are no rows.
    """
    together = changed.where(F.col("_key").isNotNull()).repartition("_key")  # one exchange for both steps
    in_partition = _last(together, ["_partition", "_key"], F.col("_offset"))
    rows = _last(in_partition, ["_key"], F.struct("_timestamp", "_partition"))
    return rows.where(~F.col(_DELETED)).drop(_DELETED)


def as_changes(rows: DataFrame) -> DataFrame:
    """Rows of a table as the changes that made them."""
    return rows.withColumn(_DELETED, F.lit(False))


def _last(frame: DataFrame, keys: list[str], order: Column) -> DataFrame:
    whole = F.struct(*(F.col(f"`{name}`") for name in frame.columns))
    return frame.groupBy(*keys).agg(F.max_by(whole, order).alias("_last")).select("_last.*")
