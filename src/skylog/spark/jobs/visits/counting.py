"""Counting visits: records of a topic in, organisation, day and number out. Knows neither offsets nor databases.

An event is what `skylog.events` sends. The day is that of the record's timestamp, which is when it happened, in UTC
whatever the session's time zone. An organisation is a text or a number; what no database would take for a key (nothing,
a NUL, more than 255 characters) is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PAGE_VIEW: Final = "page.view"
ANY_EVENT: Final = "*"
ORGANISATION_FIELDS: Final = ("attributes.organisation", "attributes.org_id")
"""Where an organisation is looked for; the first that is there counts."""

NO_EVENT: Final = "no event"
NO_ORGANISATION: Final = "no organisation"
NO_DAY: Final = "no day"

_ORGANISATION_MAX_LENGTH: Final = 255  # within what PostgreSQL can index, also if it is all four-byte characters
_DAY_US: Final = 86_400_000_000
_YEAR_10000_US: Final = 253_402_300_800_000_000
_STRICT: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}

_Tree = dict[str, "_Tree"]


def visits(
    events: DataFrame, event: str = PAGE_VIEW, organisation_fields: Sequence[str] = ORGANISATION_FIELDS
) -> DataFrame:
    """Columns organisation, day and visits, of records with the data source's columns `value` and `timestamp`."""
    counted = tally(events, event, organisation_fields)
    return counted.where("fault IS NULL").select("organisation", "day", "visits")


def tally(events: DataFrame, event: str, organisation_fields: Sequence[str]) -> DataFrame:
    """The visits, and with `fault` instead of organisation and day what could not be counted, and how often.

    Events of another name are neither.
    """
    parsed = F.from_json(F.col("value").cast("string"), _schema(organisation_fields), _STRICT)
    rows = events.select(parsed.alias("parsed"), F.unix_micros("timestamp").alias("time_us"))
    name = F.col("parsed.event")
    if event != ANY_EVENT:
        rows = rows.where(name.isNull() | (name == event))
    organisation = F.coalesce(*(_field(path) for path in organisation_fields))
    has_right_length = F.length(organisation).between(1, _ORGANISATION_MAX_LENGTH)
    time_us = F.col("time_us")
    fault = (
        F.when(name.isNull(), NO_EVENT)
        .when(organisation.isNull() | ~has_right_length | F.contains(organisation, F.lit("\0")), NO_ORGANISATION)
        .when(time_us.isNull() | ~time_us.between(0, _YEAR_10000_US - 1), NO_DAY)
    )
    day = F.date_from_unix_date(F.expr(f"INT(time_us DIV {_DAY_US})"))
    keyed = rows.select(fault.alias("fault"), organisation.alias("organisation"), day.alias("day"))
    for column in ("organisation", "day"):
        keyed = keyed.withColumn(column, F.when(F.col("fault").isNull(), F.col(column)))
    return keyed.groupBy("fault", "organisation", "day").agg(F.count("*").alias("visits"))


def _field(path: str) -> Column:
    column = F.col("parsed")
    for name in path.split("."):
        column = column.getField(name)
    return column


def _schema(paths: Sequence[str]) -> StructType:
    """Of the event's name and the fields at dotted `paths`; whatever else an event has is skipped."""
    tree: _Tree = {"event": {}}
    for path in paths:
        level = tree
        for name in path.split("."):
            level = level.setdefault(name, {})
    return _struct(tree)


def _struct(tree: _Tree) -> StructType:
    return StructType([StructField(name, _struct(below) if below else StringType()) for name, below in tree.items()])
