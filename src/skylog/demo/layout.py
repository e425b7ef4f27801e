"""The names and paths of the demo: its topics, consumer groups and files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

APPLICATION: Final = "website"
EVENTS: Final = "page_views"
EVENTS_PARTITIONS: Final = 3
RISING: Final = "rising_pages"
PAGES_TOPIC: Final = "pages"
USERS_TOPIC: Final = "users"
FEED: Final = "feed"
FEED_UNPARSED: Final = f"{FEED}__unparsed"

NEWSFEED: Final = "newsfeed"
JOBS: Final = ("land", "visits", "rising")
SEARCH: Final = "search"
"""The job that reads the pages, not the events."""
GROUPS: Final = (NEWSFEED, *JOBS)
"""The readers whose lag ends with the events: a consumer group, and Spark jobs, each a group of its name.

The groups of streams, `feed` and `security`, are not among them: Spark commits a batch when the next one begins.
"""


@dataclass(frozen=True)
class Layout:
    """The demo's directory. A second run in the same directory continues with its contents."""

    root: Path

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def cluster(self) -> Path:
        """The directory of the cluster, in place of `broker`, if there are several brokers."""
        return self.root / "cluster"

    @property
    def secrets(self) -> Path:
        """Certificates, passwords and settings of a secured broker. Those of a cluster are in its directory."""
        return self.root / "secrets"

    @property
    def journals(self) -> Path:
        """Journals of the producer's audit: not in the default directory, which may hold counts of other clusters."""
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
    def search(self) -> Path:
        """The full-text index of the pages."""
        return self.root / "search.db"

    @property
    def security(self) -> Path:
        return self.root / "security.db"

    @property
    def state(self) -> Path:
        """The state of streams."""
        return self.root / "state"

    @property
    def spark_log(self) -> Path:
        return self.root / "spark.log"
