"""Adds up the reports of all tiers, each once, and compares them by topic and window. No files, clients or clock.

A `Ledger` adds up the reports of a topic, a `BalanceSheet` compares them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from skylog.audit.balance_sheet import BalanceSheet
from skylog.audit.ledger import Ledger
from skylog.audit.report import DEFAULT_WINDOW_MS, Report, Tier
from skylog.audit.verdict import Balance

DEFAULT_GRACE_MS: Final = 120_000


class Books:
    """Takes reports in the order of the audit topic, and computes the balance at any time."""

    def __init__(self, window_ms: int = DEFAULT_WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._ids: set[str] = set()
        self._ledgers: dict[str, Ledger] = {}

    @property
    def topics(self) -> list[str]:
        """All topics with a report, sorted by name."""
        return sorted(self._ledgers)

    def add(self, report: Report) -> bool:
        """Add a report; returns False if it was added before. Raises ReportError for an inconsistent report."""
        if report.id in self._ids:
            return False
        ledger = self._ledgers.get(report.topic) or Ledger(self._window_ms)
        ledger.add(report)
        self._ledgers[report.topic] = ledger
        self._ids.add(report.id)
        return True

    def balance(
        self,
        now_ms: int,
        grace_ms: int = DEFAULT_GRACE_MS,
        *,
        topics: Collection[str] | None = None,
        groups: Collection[str] | None = None,
        required: Collection[Tier] = (),
        tables: Collection[str] = (),
    ) -> list[Balance]:
        """Return the balance of every window of every topic, in order.

        A window is open until `grace_ms` after its end. With `groups`, only those groups are compared; in topics given
        by name, they count as late even if they have never reported, and so do `tables`. A `required` tier is late in
        every window in which it has counted nothing.
        """
        balances: list[Balance] = []
        for topic in self.topics if topics is None else sorted(set(topics) & self._ledgers.keys()):
            ledger = self._ledgers[topic]
            readers = {
                key: reader
                for key, reader in ledger.readers.items()
                if groups is None or key[0] is not Tier.CONSUMED or key[1] in groups
            }
            if topics is not None:
                for group in groups or ():
                    readers.setdefault((Tier.CONSUMED, group), ledger.new_reader())
                for table in tables:
                    readers.setdefault((Tier.LANDED, table), ledger.new_reader())
            sheet = BalanceSheet(topic, ledger, readers, self._window_ms)
            balances += sheet.balances(now_ms - grace_ms, required)
        return balances
