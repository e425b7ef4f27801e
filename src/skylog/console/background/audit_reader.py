"""Reads the audit topic in the background, only while a page shows the audit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from skylog.audit import DEFAULT_WINDOW_MS, NoAuditTopicError
from skylog.audit.verdict import Balance, Verdict
from skylog.audit_topic import AuditTopic
from skylog.console.background.on_demand import OnDemandTask
from skylog.console.cluster.client_pool import ClientPool

INTERVAL_S: Final = 10.0
MAX_REPORTS: Final = 100_000  # about a kilobyte each
DAY_MS: Final = 86_400_000
PROBLEMS: Final = frozenset({Verdict.LOST, Verdict.DUPLICATED, Verdict.LATE})
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class AuditSnapshot:
    """The audit at one moment, with the newest window first.

    `exists` is False without an audit topic. `as_of_ms` is None before the first read.
    """

    as_of_ms: int | None = None
    exists: bool = False
    windows: Sequence[Balance] = ()
    begins_ms: int = 0
    foreign_count: int = 0


class AuditReader:
    """Keeps the windows of all topics. Call it from the event loop; it reads in a thread.

    `progress` is the number of reports read so far and the total, or None if no read is running.
    """

    def __init__(self, cluster: ClientPool) -> None:
        self.progress: tuple[int, int] | None = None
        self._cluster = cluster
        self._topic: AuditTopic | None = None
        self._latest = AuditSnapshot()
        self._reading = OnDemandTask("skylog-audit-reader", self._read, INTERVAL_S)

    @property
    def problem(self) -> str | None:
        return self._reading.problem

    async def snapshot(self) -> AuditSnapshot:
        """Return the latest snapshot. Waits a few seconds for the first read after an idle time."""
        await self._reading.request(_TIMEOUT_S)
        return self._latest

    async def summary(self) -> dict[str, Any] | None:
        """Return the number of windows of the last day by verdict; None without an audit topic.

        `problem` is the error of the last read, or None. `as_of_ms` is None during the first read.
        """
        recent = await self.windows_of_last_day()
        latest = self._latest
        if not latest.exists and latest.as_of_ms is not None and self.problem is None:
            return None
        return {
            "as_of_ms": latest.as_of_ms,
            "problem": self.problem,
            "windows": dict(Counter(balance.verdict.value for balance in recent)),
        }

    async def windows_of_last_day(self) -> list[Balance]:
        latest = await self.snapshot()
        since_ms = time.time_ns() // 1_000_000 - DAY_MS
        return [balance for balance in latest.windows if balance.window_end_ms > since_ms]

    def close(self) -> None:
        self._reading.close()

    def _read(self) -> None:
        topic = self._topic or AuditTopic(self._cluster.connection(), MAX_REPORTS)
        try:
            topic.refresh(self._set_progress)
        except NoAuditTopicError:
            self._topic, self._latest = None, AuditSnapshot(time.time_ns() // 1_000_000)
            return
        finally:
            self.progress = None
        self._topic = topic
        now_ms = time.time_ns() // 1_000_000
        found = [
            each for each in topic.books(DEFAULT_WINDOW_MS).balance(now_ms) if each.window_start_ms >= topic.begins_ms
        ]
        found.sort(key=lambda balance: (-balance.window_start_ms, balance.topic))
        self._latest = AuditSnapshot(now_ms, True, found, topic.begins_ms, topic.foreign_count)

    def _set_progress(self, done: int, total: int) -> None:
        self.progress = done, total
