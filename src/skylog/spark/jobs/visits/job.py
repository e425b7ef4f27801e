"""The job: Spark counts an increment, which leaves few rows, and the driver adds them to the table."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from skylog.spark.jobs.increments import Increment, Offsets
from skylog.spark.jobs.visits.counting import ORGANISATION_FIELDS, PAGE_VIEW, tally
from skylog.spark.jobs.visits.stores import Count, VisitStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class Visits:
    """Keeps the table of `store` at the visits of `topics`. `faults` has what could not be counted, since the start."""

    name = "visits"

    def __init__(
        self,
        store: VisitStore,
        topics: Collection[str],
        *,
        event: str = PAGE_VIEW,
        organisation_fields: Sequence[str] = ORGANISATION_FIELDS,
    ) -> None:
        self._store = store
        self._topics = frozenset(topics)
        self._event = event
        self._organisation_fields = organisation_fields
        self._done: Offsets = {}
        self.faults: Counter[str] = Counter()

    def done(self) -> Offsets | None:
        """Of these topics; the table may count others as well."""
        self._done = {key: offset for key, offset in self._store.offsets().items() if key.topic in self._topics}
        return self._done or None

    def apply(self, records: DataFrame, increment: Increment) -> None:
        counts, faults = [], Counter[str]()
        for row in tally(records, self._event, self._organisation_fields).collect():
            if row.fault is None:
                counts.append(Count(row.organisation, row.day, row.visits))
            else:
                faults[row.fault] += row.visits
        self._store.apply(counts, self._done, increment.end)
        self._done = increment.end
        self.faults += faults
        if faults:
            told = ", ".join(f"{count:,} × {fault} ({self.faults[fault]:,} so far)" for fault, count in faults.items())
            logger.warning("%s: records that are not counted: %s", self.name, told)
