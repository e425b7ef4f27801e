"""The fields of events, for expressions in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls them

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_SCHEMA: Final = (
    "id STRING, event STRING, timestamp DOUBLE, user STRUCT<id: STRING, created_at: DOUBLE>, "
    "attributes MAP<STRING, STRING>, server STRING, application STRING"
)
"""The form that `skylog.events` gives to events; attributes are text, JSON where they are more than one value."""


def event_fields(records: DataFrame, schema: str = EVENT_SCHEMA) -> DataFrame:
    """The fields of JSON values as columns, NULL where a value has none; and the column `record`, all of the record."""
    text = F.col("value").cast("string")
    record = F.struct(*(F.col(f"`{name}`") for name in records.columns)).alias("record")
    return records.select(record, F.from_json(text, schema).alias("fields")).select("record", "fields.*")
