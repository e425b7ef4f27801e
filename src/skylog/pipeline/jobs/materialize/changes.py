"""Converts records of a changelog to changes, and changes to current rows.

the row's fields    as in the schema
_corrupt            the text of a value that does not match the schema; the fields are NULL then
_key                the record's key
_partition, _offset, _timestamp    the record that last changed the row
_deleted            in changes only: the record has no value, so the row is deleted
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.event_parser import FIELDS, REASON, parse, parse_schema, text_of_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = "_key"
_CORRUPT: Final = "_corrupt"
_DELETED: Final = "_deleted"


def changes(records: DataFrame, schema: str) -> DataFrame:
    """Return a change for each record with a JSON value, with the fields of `schema` (DDL)."""
    kind = parse_schema(schema)
    is_unparsed = F.col("value").isNotNull() & F.col(REASON).isNotNull()
    return parse(records, kind).select(
        *(F.col(f"{FIELDS}.`{name}`").alias(name) for name in kind.names),
        F.when(is_unparsed, text_of_value()).alias(_CORRUPT),
        F.col("key").alias(KEY),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("value").isNull().alias(_DELETED),
    )


def materialize(changed: DataFrame, *, is_one_task: bool = False) -> DataFrame:
    """Return the current rows after all changes: the last one of each key, without deleted rows.

    Within a partition the highest offset is the last. If a key is in several partitions, because partitions were added
    to the topic, the partition with the newer last record wins. Records without a key are ignored. With `is_one_task`,
    one task does everything: for a few changes.
    """
    keyed = changed.where(F.col(KEY).isNotNull())
    together = keyed.coalesce(1) if is_one_task else keyed.repartition(KEY)  # one shuffle for both steps
    in_partition = _last(together, ["_partition", KEY], F.col("_offset"))
    rows = _last(in_partition, [KEY], F.struct("_timestamp", "_partition"))
    return rows.where(~F.col(_DELETED)).drop(_DELETED)


def as_changes(rows: DataFrame) -> DataFrame:
    """Convert rows of a table back to changes."""
    return rows.withColumn(_DELETED, F.lit(False))


def _last(frame: DataFrame, keys: list[str], order: Column) -> DataFrame:
    whole = F.struct(*(F.col(f"`{name}`") for name in frame.columns))
    return frame.groupBy(*keys).agg(F.max_by(whole, order).alias("_last")).select("_last.*")
