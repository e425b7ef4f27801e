"""Keeps the books of the audit up to date while somebody looks at them: reading the audit topic costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from skylog.audit import DEFAULT_WINDOW_MS, NoAuditTopicError
from skylog.audit.verdict import SEVERITY, Balance, Verdict
from skylog.console.audit_topic import AuditTopic
from skylog.console.balance_document import finding_document, sentence
from skylog.console.cluster import Cluster
from skylog.console.on_demand import OnDemand

INTERVAL_S: Final = 10.0
MAX_REPORTS: Final = 100_000  # about a kilobyte each
DAY_MS: Final = 86_400_000
PROBLEMS: Final = frozenset({Verdict.LOST, Verdict.DUPLICATED, Verdict.LATE})
_PATIENCE_S: Final = 5.0
_WORST: Final = 5


@dataclass(frozen=True)
class BooksSeen:
    """The books at a moment. `windows` are from the newest on.

    Without an audit topic `exists` is False; before the first look `as_of_ms` is None.
    """

    as_of_ms: int | None = None
    exists: bool = False
    windows: Sequence[Balance] = ()
    begins_ms: int = 0
    foreign_count: int = 0


class AuditWatch:
    """The windows of all topics. Asked from the event loop, reads in a thread.

    `progress` says how many of how many reports have been read while that goes on.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.progress: tuple[int, int] | None = None
        self._cluster = cluster
        self._topic: AuditTopic | None = None
        self._seen = BooksSeen()
        self._reading = OnDemand("skylog-audit-watch", self._read, INTERVAL_S)

    @property
    def problem(self) -> str | None:
        return self._reading.problem

    async def books(self) -> BooksSeen:
        """The latest; waits for those of now if nobody has asked for a while, but not for ever."""
        await self._reading.ask(_PATIENCE_S)
        return self._seen

    async def summary(self) -> dict[str, Any] | None:
        """How many windows of the last day have each verdict, and the worst findings; None without an audit topic.

        `problem` says why they are not up to date, if so; `as_of_ms` is None while they are read for the first time.
        """
        seen = await self.books()
        if not seen.exists and seen.as_of_ms is not None and self.problem is None:
            return None
        since_ms = time.time_ns() // 1_000_000 - DAY_MS
        windows = [balance for balance in seen.windows if balance.window_end_ms > since_ms]
        wrong = [balance for balance in windows if balance.verdict in PROBLEMS]
        wrong.sort(key=lambda balance: (-SEVERITY[balance.verdict], -balance.findings[0].messages))
        return {
            "as_of_ms": seen.as_of_ms,
            "problem": self.problem,
            "windows": dict(Counter(balance.verdict.value for balance in windows)),
            "worst": [
                {
                    "topic": balance.topic,
                    "window_start_ms": balance.window_start_ms,
                    **finding_document(balance.findings[0]),
                    "told": sentence(balance.findings[0]),
                }
                for balance in wrong[:_WORST]
            ],
        }

    def close(self) -> None:
        self._reading.close()

    def _read(self) -> None:
        topic = self._topic or AuditTopic(self._cluster.connection(), MAX_REPORTS)
        try:
            topic.refresh(self._tell)
        except NoAuditTopicError:
            self._topic, self._seen = None, BooksSeen(time.time_ns() // 1_000_000)
            return
        finally:
            self.progress = None
        self._topic = topic
        now_ms = time.time_ns() // 1_000_000
        found = [
            each for each in topic.books(DEFAULT_WINDOW_MS).balance(now_ms) if each.window_start_ms >= topic.begins_ms
        ]
        found.sort(key=lambda balance: (-balance.window_start_ms, balance.topic))
        self._seen = BooksSeen(now_ms, True, found, topic.begins_ms, topic.foreign_count)

    def _tell(self, done: int, total: int) -> None:
        self.progress = done, total
