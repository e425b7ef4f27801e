"""Converts records of topics to rows of tables: pure DataFrame transforms.

    events_frame(records)      a row for every record that parses
    unparsed_frame(records)    a row for every record that does not, with the reason

Every record is in exactly one of the two. The parser is `skylog.pipeline.event_parser`. A record without a time of
its event does not parse either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from skylog.pipeline.event_parser import (
    FIELDS,
    REASON,
    SchemaError,
    only_parsed,
    parse,
    parse_decoded,
    parse_schema,
    text_of_value,
)
from skylog.pipeline.table import UNPARSED
from skylog.spark.schema import EVENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ENVELOPE: Final = (
    "id STRING, event STRING, timestamp DOUBLE, user STRUCT<id: STRING, created_at: DOUBLE>, attributes STRING, "
    "server STRING, application STRING"
)
"""The events of `skylog.events`; `attributes` is JSON text."""

TABLE: Final = "_table"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
KEY: Final = "_key"
SIZE_BYTES: Final = "_size_bytes"
EVENT_TIME: Final = "event_time"
EVENT_DATE: Final = "event_date"
EVENT_HOUR: Final = "event_hour"
PARTITIONED_BY: Final = (EVENT_DATE, EVENT_HOUR)

_OURS: Final = frozenset({TABLE, PARTITION, OFFSET, TIMESTAMP, KEY, SIZE_BYTES, EVENT_TIME, EVENT_DATE, EVENT_HOUR})


def event_schema(ddl: str) -> StructType:
    """Parse the DDL of the events' columns. Raises SchemaError for invalid DDL and for reserved names."""
    schema = parse_schema(ddl)
    _check_names(schema)
    return schema


def _check_names(schema: StructType) -> None:
    taken = [name for name in schema.names if name.lower() in _OURS]
    if taken:
        raise SchemaError(f"column '{taken[0]}' is reserved; remove it from the schema")


def landed_schema(records: StructType, ddl: str) -> StructType:
    """Return the events' columns: those of decoded values, or of the DDL. Raises SchemaError for reserved names."""
    if EVENT not in records.names:
        return event_schema(ddl)
    found = _widest(records[EVENT].dataType)
    assert isinstance(found, StructType)
    _check_names(found)
    return found


def _widest(kind: DataType) -> DataType:
    """Return a type with BIGINT for INT and DOUBLE for FLOAT: a new version of a schema may have those, a table not."""
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _widest(each.dataType)) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_widest(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _widest(kind.valueType))
    if isinstance(kind, IntegerType):
        return LongType()
    return DoubleType() if isinstance(kind, FloatType) else kind


def events_frame(records: DataFrame, schema: StructType, event_time: str | None = None) -> DataFrame:
    """Return the columns of `schema`, those of the record, and the date and hour (UTC) of the event.

    `event_time` is the field with the time of the event: TIMESTAMP, seconds since 1970 as DOUBLE, milliseconds as
    BIGINT, or ISO 8601 as STRING. The default is the record's timestamp.
    """
    rows = only_parsed(_parsed(records, schema, event_time))
    fields = [F.col(f"{FIELDS}.`{name}`") for name in schema.names]
    place = _place(F.col("topic"), F.col(EVENT_TIME))
    return rows.select(*fields, EVENT_TIME, *_record_columns(), *place)


def unparsed_frame(records: DataFrame, schema: StructType, event_time: str | None = None) -> DataFrame:
    """Return value (as text and as bytes), reason, and the columns of the record, with its own date and hour."""
    rows = _parsed(records, schema, event_time).where(F.col(REASON).isNotNull())
    time = F.when(_is_placeable(F.col("timestamp")), F.col("timestamp")).otherwise(F.timestamp_micros(F.lit(0)))
    place = _place(F.concat("topic", F.lit(UNPARSED)), time)
    return rows.select(text_of_value(), "value", F.col(REASON).alias("reason"), *_record_columns(), *place)


def _parsed(records: DataFrame, schema: StructType, event_time: str | None) -> DataFrame:
    found = parse_decoded(records, schema) if EVENT in records.columns else parse(records, schema)
    rows = found.withColumn(EVENT_TIME, _event_time(schema, event_time))
    is_timeless = ~F.coalesce(_is_placeable(F.col(EVENT_TIME)), F.lit(False))
    reason = F.coalesce(F.col(REASON), F.when(is_timeless, f"no time in {event_time or 'the record'}"))
    return rows.withColumn(REASON, reason)


def _event_time(schema: StructType, field: str | None) -> Column:
    """Return the event time, or null if it is missing or invalid: one record must not fail the job."""
    if field is None:
        return F.col("timestamp")
    kind: object = schema
    for name in field.split("."):
        if not isinstance(kind, StructType) or name not in kind.names:
            raise SchemaError(f"--event-time {field}: the schema does not have this field")
        kind = kind[name].dataType
    found = F.col(".".join(f"`{name}`" for name in (FIELDS, *field.split("."))))
    if isinstance(kind, (TimestampType, TimestampNTZType, DateType)):
        return found.cast("timestamp")
    if isinstance(kind, StringType):
        return F.try_to_timestamp(found)
    if isinstance(kind, (DoubleType, FloatType)):
        return F.timestamp_micros(F.round(found * 1_000_000).try_cast("long"))
    if isinstance(kind, IntegralType):
        return F.timestamp_micros(F.try_multiply(found.cast("long"), F.lit(1000)))
    raise SchemaError(f"--event-time {field}: expected TIMESTAMP, DOUBLE, BIGINT or STRING, found {kind}")


def _is_placeable(time: Column) -> Column:
    """Return whether the year is from 1 to 9999, as required for a date."""
    return (F.year(time) >= 1) & (F.year(time) <= 9999)


def _record_columns() -> list[Column]:
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    return [
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        F.col("timestamp").alias(TIMESTAMP),
        F.col("key").alias(KEY),
        size.alias(SIZE_BYTES),
    ]


def _place(table: Column, time: Column) -> list[Column]:
    """Return the table, date and hour. The latter are in UTC, whatever the time zone of the session."""
    hours = F.floor(F.unix_micros(time) / F.lit(3_600_000_000))
    return [
        table.alias(TABLE),
        F.date_from_unix_date(F.floor(hours / 24).cast("int")).alias(EVENT_DATE),
        F.pmod(hours, F.lit(24)).cast("int").alias(EVENT_HOUR),
    ]
