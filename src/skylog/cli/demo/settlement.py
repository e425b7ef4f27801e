"""The end of the demonstration: the books of this run, window by window, and whether they balance."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.text import Text

from skylog.audit import DEFAULT_WINDOW_MS, NoAuditTopicError, Tier
from skylog.cli.output import print_heading, print_table
from skylog.console.audit_topic import AuditTopic
from skylog.printable import escape_controls

if TYPE_CHECKING:
    from skylog.audit.verdict import Balance

TIERS: Final = (Tier.PRODUCED, Tier.STORED, Tier.CONSUMED, Tier.LANDED)
_AGAIN_S: Final = 0.25
_NO_GRACE_MS: Final = 0
_ALL_CLOSED_MS: Final = 1 << 62


def settle(bootstrap: str, topic: str, group: str, since_ms: int, patience_s: float) -> list[Balance]:
    """The windows of `topic` from `since_ms` on, as soon as all of them balance; after so long as they are then.

    This is `skylog audit verify --tiers produced,stored,consumed,landed --wait`: every tier must have counted.
    """
    reports = AuditTopic(bootstrap)
    deadline = time.monotonic() + patience_s
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
        time.sleep(_AGAIN_S)


def is_balanced(balances: Sequence[Balance]) -> bool:
    """Whether there is something to judge, and all of it agrees."""
    return bool(balances) and all(balance.is_balanced for balance in balances)


def print_settlement(topic: str, balances: Sequence[Balance]) -> None:
    """A line per window, their sum, and the verdict."""
    numbers = [tier.value.upper() for tier in TIERS]
    lines: list[list[object]] = []
    for balance in balances:
        counts = _counts(balance)
        style = "green" if balance.is_balanced else "bold red"
        when = f"{datetime.fromtimestamp(balance.window_start_ms / 1000):%Y-%m-%d %H:%M}"
        lines.append([when, *map(_shown, counts), Text(escape_controls(str(balance)), style=style)])
    sums = [sum(_counts(balance)[place] or 0 for balance in balances) for place in range(len(TIERS))]
    lines.append(["together", *map(_shown, sums), ""])
    print_heading(topic, "what every tier has counted, by minute")
    print_table(["WINDOW", *numbers, "VERDICT"], lines, numbers=numbers)


def _counts(balance: Balance) -> list[int | None]:
    return [balance.produced, balance.stored, _only(balance.consumed), _only(balance.landed)]


def _only(counts: Mapping[str, int]) -> int | None:
    """Of the one group and the one table that there are."""
    return next(iter(counts.values()), None)


def _shown(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
