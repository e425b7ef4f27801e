"""Records of topics into rows of tables: pure transforms of DataFrames.

    events_frame(records)      a row for every record that is an event
    unparsed_frame(records)    a row for every one that is not, and why

Every record is in one of the two. Values are JSON objects, read by Spark's `from_json`: fields that the schema does not
name are left out, those that are missing are null, a field of another type makes the whole record unparsed. A STRING
takes any value, as its JSON text. What follows the end of the first object up to another `}` is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody gives it
from pyspark.sql.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from skylog.spark.jobs.land.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ENVELOPE: Final = (
    "id STRING, event STRING, timestamp DOUBLE, user STRUCT<id: STRING, created_at: DOUBLE>, attributes STRING, "
    "server STRING, application STRING"
)
"""The events of `skylog.events`; `attributes` is JSON text."""

TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
KEY: Final = "_key"
SIZE_BYTES: Final = "_size_bytes"
EVENT_TIME: Final = "event_time"
EVENT_DATE: Final = "event_date"
EVENT_HOUR: Final = "event_hour"
PARTITIONED_BY: Final = (TOPIC, EVENT_DATE, EVENT_HOUR)

_CORRUPT: Final = "_corrupt"
_REASON: Final = "_reason"
_OURS: Final = frozenset(
    {TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, SIZE_BYTES, EVENT_TIME, EVENT_DATE, EVENT_HOUR, _CORRUPT, _REASON}
)
_JSON_SPACE: Final = " \t\r\n"
_JSON: Final = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def event_schema(ddl: str) -> StructType:
    """The columns of events. Raises TableError for what is no DDL, and for names that a table has already."""
    try:
        schema = StructType.fromDDL(ddl)  # asks the JVM, so there must be a session
    except PySparkException as error:
        raise TableError(f"--schema {ddl}: {str(error).strip().partition(chr(10))[0]}") from error
    assert isinstance(schema, StructType)
    taken = [name for name in schema.names if name.lower() in _OURS]
    if taken:
        raise TableError(f"a table has a column '{taken[0]}' of its own; leave it out of the schema")
    return schema


def events_frame(records: DataFrame, schema: StructType, event_time: str | None = None) -> DataFrame:
    """The columns of `schema`, those of the record, and the date and hour (UTC) of the event.

    `event_time` is the field that says when it happened: TIMESTAMP, seconds since 1970 as DOUBLE, milliseconds as
    BIGINT, or ISO 8601 as STRING. Without it the record's own time counts.
    """
    parsed = _parsed(records, schema, event_time)
    # Spark would move the filter below the parsing, and parse twice. It moves none past an observation.
    parsed = parsed.observe("land", F.count(_REASON).alias("unparsed")).where(F.col(_REASON).isNull())
    fields = [F.col(f"event.`{name}`") for name in schema.names]
    return parsed.select(*fields, EVENT_TIME, *_record_columns(), *_place(F.col(EVENT_TIME)))


def unparsed_frame(records: DataFrame, schema: StructType, event_time: str | None = None) -> DataFrame:
    """The value as text and as bytes, the reason, and the columns of the record; by the date and hour of the record."""
    parsed = _parsed(records, schema, event_time).where(F.col(_REASON).isNotNull())
    text = F.make_valid_utf8(F.col("value").cast("string")).alias("text")
    time = F.when(_is_placeable(F.col("timestamp")), F.col("timestamp")).otherwise(F.timestamp_micros(F.lit(0)))
    return parsed.select(text, "value", F.col(_REASON).alias("reason"), *_record_columns(), *_place(time))


def _parsed(records: DataFrame, schema: StructType, event_time: str | None) -> DataFrame:
    text = F.col("value").cast("string")
    with_corrupt = StructType([*schema.fields]).add(_CORRUPT, StringType())
    parsed = records.withColumn("text", text).withColumn("event", F.from_json("text", with_corrupt, _JSON))
    parsed = parsed.withColumn(EVENT_TIME, _event_time(schema, event_time))
    object_text = F.trim("text", F.lit(_JSON_SPACE))
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(~F.is_valid_utf8("text"), "not UTF-8")
        .when(~(F.startswith(object_text, F.lit("{")) & F.endswith(object_text, F.lit("}"))), "not a JSON object")
        .when(F.col("event").isNull() | F.col(f"event.{_CORRUPT}").isNotNull(), "not JSON of the schema")
        .when(~F.coalesce(_is_placeable(F.col(EVENT_TIME)), F.lit(False)), f"no time in {event_time or 'the record'}")
    )
    return parsed.withColumn(_REASON, reason)


def _event_time(schema: StructType, field: str | None) -> Column:
    """Null where there is none, or none that can be: one record must not stop a job."""
    if field is None:
        return F.col("timestamp")
    kind: object = schema
    for name in field.split("."):
        if not isinstance(kind, StructType) or name not in kind.names:
            raise TableError(f"--event-time {field}: the schema has no such field")
        kind = kind[name].dataType
    found = F.col(".".join(f"`{name}`" for name in ("event", *field.split("."))))
    if isinstance(kind, (TimestampType, TimestampNTZType, DateType)):
        return found.cast("timestamp")
    if isinstance(kind, StringType):
        return F.try_to_timestamp(found)
    if isinstance(kind, (DoubleType, FloatType)):
        return F.timestamp_micros(F.round(found * 1_000_000).try_cast("long"))
    if isinstance(kind, IntegralType):
        return F.timestamp_micros(F.try_multiply(found.cast("long"), F.lit(1000)))
    raise TableError(f"--event-time {field}: a time is TIMESTAMP, DOUBLE, BIGINT or STRING, not {kind}")


def _is_placeable(time: Column) -> Column:
    """Whether its year has four digits, as a directory by date needs it."""
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


def _place(time: Column) -> list[Column]:
    """Topic, date and hour; of UTC, whatever the zone of the session."""
    hours = F.floor(F.unix_micros(time) / F.lit(3_600_000_000))
    return [
        F.col("topic").alias(TOPIC),
        F.date_from_unix_date(F.floor(hours / 24).cast("int")).alias(EVENT_DATE),
        F.pmod(hours, F.lit(24)).cast("int").alias(EVENT_HOUR),
    ]
