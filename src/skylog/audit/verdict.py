"""The result of the audit for a topic and a window. Data only; `balance_sheet.py` computes it, commands print it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from skylog.audit.report import Tier


class Verdict(StrEnum):
    """The verdict on a window.

    `unjudged`: only one tier has counted, so there is nothing to compare. `open`: reports may still be in flight.
    `late`: a reader has not reached it yet. `duplicated`: a tier has too many messages. `lost`: messages are missing.
    """

    UNJUDGED = "unjudged"
    OPEN = "open"
    COMPLETE = "complete"
    LATE = "late"
    DUPLICATED = "duplicated"
    LOST = "lost"


SEVERITY: Final = {verdict: number for number, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True)
class Finding:
    """The number of messages that a tier has too few or too many, compared with the tier before it.

    Without a `source` it concerns the whole tier.
    """

    tier: Tier
    source: str
    verdict: Verdict
    messages: int

    def __str__(self) -> str:
        match self.tier:
            case Tier.CONSUMED if self.source:
                where = f"group {self.source}"
            case Tier.LANDED if self.source:
                where = f"landed in {self.source}"
            case _:
                where = self.tier.value
        return f"{self.verdict} {self.messages} ({where})"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The bytes of a balance: of keys and values if clients counted, on disk if a broker did."""

    produced: int | None
    stored: int | None
    consumed: Mapping[str, int]
    landed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Balance:
    """One topic in one window: the counts of each tier, and whether they agree.

    `produced` and `stored` are None if that tier does not count; `consumed` is by group and `landed` by table. `sizes`
    are never compared: bytes have another meaning in each tier. `findings` are sorted by severity, worst first, and are
    present for an open window too.
    """

    topic: str
    window_start_ms: int
    window_end_ms: int
    produced: int | None
    stored: int | None
    consumed: Mapping[str, int]
    landed: Mapping[str, int]
    sizes: Sizes
    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def is_balanced(self) -> bool:
        """Whether all compared tiers agree, also while the window is open."""
        return self.verdict is not Verdict.UNJUDGED and not self.findings

    def __str__(self) -> str:
        """Return the verdict with its findings: `lost 3 (stored)`."""
        if self.verdict in (Verdict.UNJUDGED, Verdict.OPEN, Verdict.COMPLETE):
            return self.verdict.value
        return ", ".join(map(str, self.findings))
