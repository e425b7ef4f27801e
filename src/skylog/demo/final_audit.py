"""The audit at the end of the demo: compares the counts of all tiers in every window of this run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.text import Text

from skylog.audit import DEFAULT_WINDOW_MS, NoAuditTopicError, Tier
from skylog.audit_topic import AuditTopic
from skylog.client import Connection
from skylog.printable import escape_controls
from skylog.terminal import print_heading, print_table

if TYPE_CHECKING:
    from skylog.audit.verdict import Balance

TIERS: Final = (Tier.PRODUCED, Tier.STORED, Tier.CONSUMED, Tier.LANDED)
_RETRY_S: Final = 0.25
_NO_GRACE_MS: Final = 0
_ALL_CLOSED_MS: Final = 1 << 62


def wait_for_balance(
    bootstrap: str | Connection, topic: str, group: str, since_ms: int, timeout_s: float
) -> list[Balance]:
    """Return the windows of `topic` from `since_ms` on as soon as all of them balance, or after `timeout_s`.

    Same as `skylog audit verify --tiers produced,stored,consumed,landed --wait`: every tier must have counted.
    """
    reports = AuditTopic(bootstrap)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            reports.refresh()
            found = [
                balance
                for balance in reports.books(DEFAULT_WINDOW_MS).balance(
                    _ALL_CLOSED_MS, _NO_GRACE_MS, topics=[topic], groups=[group], required=TIERS
                )
                if balance.window_end_ms > since_ms
            ]
        except NoAuditTopicError:
            found = []
        if is_balanced(found) or time.monotonic() >= deadline:
            return found
        time.sleep(_RETRY_S)


def is_balanced(balances: Sequence[Balance]) -> bool:
    """Return whether there is at least one window, and all windows balance."""
    return bool(balances) and all(balance.is_balanced for balance in balances)


def print_balances(topic: str, balances: Sequence[Balance]) -> None:
    """Print a row with counts and verdict for each window, and the totals."""
    numbers = [tier.value.upper() for tier in TIERS]
    lines: list[list[object]] = []
    for balance in balances:
        counts = _counts(balance)
        style = "green" if balance.is_balanced else "bold red"
        when = f"{datetime.fromtimestamp(balance.window_start_ms / 1000):%Y-%m-%d %H:%M}"
        lines.append([when, *map(_or_dash, counts), Text(escape_controls(str(balance)), style=style)])
    sums = [sum(_counts(balance)[column] or 0 for balance in balances) for column in range(len(TIERS))]
    lines.append(["total", *map(_or_dash, sums), ""])
    print_heading(topic, "messages counted by each tier, per minute")
    print_table(["WINDOW", *numbers, "VERDICT"], lines, numbers=numbers)


def _counts(balance: Balance) -> list[int | None]:
    return [balance.produced, balance.stored, _only(balance.consumed), _only(balance.landed)]


def _only(counts: Mapping[str, int]) -> int | None:
    """Return the count of the only group or table."""
    return next(iter(counts.values()), None)


def _or_dash(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
