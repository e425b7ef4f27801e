"""The job: Spark counts an increment, and the driver adds the few resulting rows to the table."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from skylog.pipeline.databases.store import Kind, RowLayout, Store
from skylog.pipeline.increments import Increment, Offsets
from skylog.pipeline.jobs.visits.counting import ORGANISATION_FIELDS, PAGE_VIEW, tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

LAYOUT: Final = RowLayout(
    {"organisation": Kind.TEXT, "day": Kind.DATE, "visits": Kind.INTEGER}, ("day", "organisation"), ("visits",)
)


class Visits:
    """Keeps the table of `store` up to date with the visits in `topics`. `faults` counts records skipped so far."""

    name = "visits"

    def __init__(
        self,
        store: Store,
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
        """Return the end offsets of these topics. The table may count other topics too."""
        self._done = {key: offset for key, offset in self._store.offsets().items() if key.topic in self._topics}
        return self._done or None

    def apply(self, records: DataFrame, increment: Increment) -> None:
        counts, faults = [], Counter[str]()
        for row in tally(records, self._event, self._organisation_fields).collect():
            if row.fault is None:
                counts.append((row.organisation, row.day, row.visits))
            else:
                faults[row.fault] += row.visits
        self._store.apply(LAYOUT, counts, self._done, increment.end)
        self._done = increment.end
        self.faults += faults
        if faults:
            text = ", ".join(f"{count:,} × {fault} ({self.faults[fault]:,} so far)" for fault, count in faults.items())
            logger.warning("%s: skipped records: %s", self.name, text)
