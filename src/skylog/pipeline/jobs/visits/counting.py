"""Counts visits in events of a topic, by organisation and day. Independent of offsets and databases.

Events are those of `skylog.events`. The day is the UTC day of the record's timestamp, whatever the session's time zone.
An organisation is a text or a number. Values that some database rejects as a key (empty, with a NUL, more than 255
characters) count as no organisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.event_parser import events as parsed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PAGE_VIEW: Final = "page.view"
ANY_EVENT: Final = "*"
ORGANISATION_FIELDS: Final = ("attributes.organisation", "attributes.org_id")
"""The fields with the organisation. The first one that is set counts."""

NO_EVENT: Final = "no event"
NO_ORGANISATION: Final = "no organisation"
NO_DAY: Final = "no day"

_ORGANISATION_MAX_LENGTH: Final = 255  # PostgreSQL can index this, even with four-byte characters only
_DAY_US: Final = 86_400_000_000
_YEAR_10000_US: Final = 253_402_300_800_000_000

_Tree = dict[str, "_Tree"]


def visits(
    events: DataFrame, event: str = PAGE_VIEW, organisation_fields: Sequence[str] = ORGANISATION_FIELDS
) -> DataFrame:
    """Return organisation, day and visits, from records with the data source's columns `value` and `timestamp`."""
    counted = tally(parsed(events, schema_of(organisation_fields)), event, organisation_fields)
    return counted.where("fault IS NULL").select("organisation", "day", "visits")


def tally(events: DataFrame, event: str, organisation_fields: Sequence[str]) -> DataFrame:
    """Return the visits, and the number of skipped events by `fault`, without organisation and day.

    `events` are parsed by `schema_of`. Events with another name are ignored.
    """
    rows = events.withColumn("time_us", F.unix_micros("record.timestamp"))
    name = F.col("event")
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
    first, *others = path.split(".")
    column = F.col(_quoted(first))
    for name in others:
        column = column.getField(name)
    return column


def schema_of(organisation_fields: Sequence[str]) -> str:
    """Return the DDL of the event's name and the fields at dotted paths. Other fields are not parsed."""
    tree: _Tree = {"event": {}}
    for path in organisation_fields:
        level = tree
        for name in path.split("."):
            level = level.setdefault(name, {})
    return ", ".join(f"{_quoted(name)} {_kind(below)}" for name, below in tree.items())


def _kind(below: _Tree) -> str:
    fields = ", ".join(f"{_quoted(name)}: {_kind(deeper)}" for name, deeper in below.items())
    return f"STRUCT<{fields}>" if below else "STRING"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
