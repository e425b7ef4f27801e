"""Converts records of a changelog to changes, and changes to current rows.

the row's fields    as in the schema
_corrupt            the text of a value that does not match the schema; the fields are NULL then
_key                the record's key
_partition, _offset, _timestamp    the record that last changed the row
_deleted            in changes only: the row is deleted, because the record has no value, or an envelope with the op `d`

The value of a record is the row, or Debezium's envelope, whose field `after` is the row.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import StringType, StructType

from skylog.pipeline.event_parser import FIELDS, REASON, parse, parse_schema, text_of_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = "_key"
DELETED: Final = "_deleted"
_CORRUPT: Final = "_corrupt"


class Envelope(StrEnum):
    """What the value of a record is: the row, or Debezium's envelope of it, without its schema."""

    PLAIN = "plain"
    DEBEZIUM = "debezium"


def changes(records: DataFrame, schema: str, envelope: Envelope = Envelope.PLAIN) -> DataFrame:
    """Return a change for each record with a JSON value, with the fields of `schema` (DDL)."""
    kind = parse_schema(schema)
    row, is_deleted = FIELDS, F.col("value").isNull()
    is_row = F.col(REASON).isNull()
    if Envelope(envelope) is Envelope.DEBEZIUM:
        row, parsed = f"{FIELDS}.after", parse(records, StructType().add("after", kind).add("op", StringType()))
        is_deleted = is_deleted | F.equal_null(F.col(f"{FIELDS}.op"), F.lit("d"))
        is_row = is_row & F.col(row).isNotNull()
    else:
        parsed = parse(records, kind)
    return parsed.select(
        *(F.col(f"{row}.`{name}`").alias(name) for name in kind.names),
        F.when(~is_deleted & ~is_row, text_of_value()).alias(_CORRUPT),
        F.col("key").alias(KEY),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        is_deleted.alias(DELETED),
    )


def materialize(changed: DataFrame, *, is_one_task: bool = False) -> DataFrame:
    """Return the current rows after all changes: the last one of each key, without deleted rows.

    With `is_one_task`, one task does everything: for a few changes.
    """
    return last_changes(changed, is_one_task=is_one_task).where(~F.col(DELETED)).drop(DELETED)


def last_changes(changed: DataFrame, *, is_one_task: bool = False) -> DataFrame:
    """Return the last change of each key.

    Within a partition the highest offset is the last. If a key is in several partitions, because partitions were added
    to the topic, the partition with the newer last record wins. Records without a key are ignored.
    """
    keyed = changed.where(F.col(KEY).isNotNull())
    together = keyed.coalesce(1) if is_one_task else keyed.repartition(KEY)  # one shuffle for both steps
    in_partition = _last(together, ["_partition", KEY], F.col("_offset"))
    return _last(in_partition, [KEY], F.struct("_timestamp", "_partition"))


def as_changes(rows: DataFrame) -> DataFrame:
    """Convert rows of a table back to changes."""
    return rows.withColumn(DELETED, F.lit(False))


def _last(frame: DataFrame, keys: list[str], order: Column) -> DataFrame:
    whole = F.struct(*(F.col(f"`{name}`") for name in frame.columns))
    return frame.groupBy(*keys).agg(F.max_by(whole, order).alias("_last")).select("_last.*")
