"""What the demonstration is made of, by name: its topics, its groups, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

APPLICATION: Final = "website"
EVENTS: Final = "page_views"
EVENTS_PARTITIONS: Final = 3
RISING: Final = "rising_pages"

NEWSFEED: Final = "newsfeed"
JOBS: Final = ("land", "visits", "rising")
GROUPS: Final = (NEWSFEED, *JOBS)
"""Everybody who reads the events: a consumer group, and Spark's jobs, which commit under their own names."""


@dataclass(frozen=True)
class Places:
    """The directory of the demonstration. Running it again goes on with what is there."""

    root: Path

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def journals(self) -> Path:
        """Of the producer's audit: its own, so that counts of another cluster never get here."""
        return self.root / "audit"

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse"

    @property
    def table(self) -> Path:
        """The events in the warehouse."""
        return self.warehouse / EVENTS

    @property
    def visits(self) -> Path:
        return self.root / "visits.db"

    @property
    def rising(self) -> Path:
        return self.root / "rising"

    @property
    def spark_log(self) -> Path:
        return self.root / "spark.log"
