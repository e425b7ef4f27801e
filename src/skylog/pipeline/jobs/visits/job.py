"""The job: Spark counts an increment, and the driver adds the few resulting rows to the table.

Events that are not counted, because they lack something, are logged with their number. Records that do not parse are
kept beside the table, as by every job.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skylog.pipeline.database import Database, OpenDatabase
from skylog.pipeline.databases.store import Kind, RowLayout
from skylog.pipeline.increments import Offsets
from skylog.pipeline.job_definition import Job
from skylog.pipeline.jobs.visits.counting import ORGANISATION_FIELDS, PAGE_VIEW, schema_of, tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

LAYOUT: Final = RowLayout(
    {"organisation": Kind.TEXT, "day": Kind.DATE, "visits": Kind.INTEGER}, ("day", "organisation"), ("visits",)
)
DATABASE: Final = "sqlite:///visits.db"
TABLE: Final = "visits"


@dataclass(frozen=True, repr=False)
class VisitTable(Database):
    """The table of counts. It takes the rows of `tally`."""

    key: tuple[str, ...] = LAYOUT.key
    add: tuple[str, ...] = LAYOUT.add

    def open(self) -> OpenVisitTable:
        return OpenVisitTable(self)


class OpenVisitTable(OpenDatabase):
    """The table during a run. `faults` counts the events that were skipped so far."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.faults: Counter[str] = Counter()

    def write(
        self, rows: DataFrame, before: Offsets, after: Offsets, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        counted = rows.collect()
        counts = [(row.organisation, row.day, row.visits) for row in counted if row.fault is None]
        self.upsert(LAYOUT, counts, before, after, before_commit)
        faults = {row.fault: row.visits for row in counted if row.fault is not None}
        self.faults.update(faults)
        if faults:
            text = ", ".join(f"{count:,} × {fault} ({self.faults[fault]:,} so far)" for fault, count in faults.items())
            logger.warning("visits: skipped events: %s", text)


def visits_job(
    topics: Sequence[str],
    database: str = DATABASE,
    table: str = TABLE,
    *,
    event: str = PAGE_VIEW,
    organisation_fields: Sequence[str] = ORGANISATION_FIELDS,
) -> Job:
    """Return the job that keeps a table of a database up to date with the visits in `topics`."""

    def visits(events: DataFrame) -> DataFrame:
        return tally(events, event, organisation_fields)

    return Job(visits, topics, VisitTable(database, table), schema=schema_of(organisation_fields))
