"""The job `security`: flags bursts of failed logins, by user and by address.

Logins are counted in overlapping windows of event time. A window with too many failures becomes a row of a database as
soon as the events are there, and its counts are updated while it is open. Late events count in their own windows until
the watermark, the newest time minus the allowed lateness, has passed the end of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.errors import ConfigError
from skylog.pipeline import Database, Job, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOGIN: Final = "user.login"
FAILED: Final = "user.login_failed"
MINUTE_MS: Final = 60_000
TABLE: Final = "suspicious_logins"
_LONGEST: Final = 255  # characters of a name that somebody has typed: a key of PostgreSQL has limits


@dataclass(frozen=True)
class LoginWindows:
    """Flag `failures` or more in a window of `length_ms`. A window begins every `slide_ms`."""

    failures: int = 10
    length_ms: int = 5 * MINUTE_MS
    slide_ms: int = MINUTE_MS
    late_ms: int = 10 * MINUTE_MS

    def __post_init__(self) -> None:
        if not 0 < self.slide_ms <= self.length_ms:
            raise ConfigError(
                f"window {self.length_ms} ms, slide {self.slide_ms} ms: a window must not be shorter than its slide"
            )


def security(events: DataFrame, windows: LoginWindows | None = None) -> DataFrame:
    """Return the flagged windows: `kind` (user or address), `who`, `window_start`, `window_end`, and counts.

    The counts are `failures`, `others` (about: different addresses of a user, or users of an address) and `logins` that
    succeeded in the window. Events have the attributes `name` and `address`.
    """
    windows = windows or LoginWindows()
    sides = (
        "array(named_struct('kind', 'user', 'who', name, 'other', address), "
        "named_struct('kind', 'address', 'who', address, 'other', name))"
    )
    logins = (
        events.where(f"event IN ('{LOGIN}', '{FAILED}')")
        .withWatermark("timestamp", f"{windows.late_ms} milliseconds")
        .selectExpr(
            "timestamp",
            f"event = '{FAILED}' AS failed",
            f"left(attributes.name, {_LONGEST}) AS name",
            f"left(attributes.address, {_LONGEST}) AS address",
        )
        .selectExpr("timestamp", "failed", f"inline({sides})")
        .where("who IS NOT NULL")
    )
    window = F.window("timestamp", f"{windows.length_ms} milliseconds", f"{windows.slide_ms} milliseconds")
    counted = logins.groupBy(window, "kind", "who").agg(
        F.count_if("failed").alias("failures"),
        F.approx_count_distinct(F.when(F.col("failed"), F.col("other"))).alias("others"),
        F.count_if(~F.col("failed")).alias("logins"),
    )
    return counted.where(F.col("failures") >= windows.failures).selectExpr(
        "kind",
        "who",
        "window.start AS window_start",
        "window.end AS window_end",
        "failures",
        "others",
        "logins",
    )


def security_job(reads: Sequence[str], database: str, table: str = TABLE, windows: LoginWindows | None = None) -> Job:
    """Return the job. The table of a database has a row for each flagged window."""
    into = Database(database, table, key=("kind", "who", "window_start"))

    @job(reads, into, stream=True, mode="update", name="security")
    def flagged(events: DataFrame) -> DataFrame:
        return security(events, windows)

    return flagged
