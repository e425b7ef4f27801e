"""What the books say of a topic and a window. Data only; `books` finds it out, commands print it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from skylog.audit.report import Tier


class Verdict(StrEnum):
    """How a window stands.

    `unjudged`: only one tier has counted, so there is nothing to compare. `open`: reports may still be on their way.
    `late`: a reader has not come so far yet. The last two are about messages that are missing and about too many.
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
    """So many messages that a tier has too few or too many of, against the tier before it.

    Without a `source` a tier as a whole is meant.
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
    """Bytes beside the messages of a balance: of keys and values where clients counted, on disk where a broker did."""

    produced: int | None
    stored: int | None
    consumed: Mapping[str, int]
    landed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Balance:
    """One topic in one window: what each tier counted, and whether that agrees.

    `produced` and `stored` are None where that tier does not count; `consumed` is by group and `landed` by table.
    `sizes` are never judged: bytes mean something else in each tier. `findings` are there from the worst on, for a
    window that is still open as well.
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
        """Whether all that were compared agree, also while the window is open."""
        return self.verdict is not Verdict.UNJUDGED and not self.findings

    def __str__(self) -> str:
        """The verdict, and what it is about: `lost 3 (stored)`."""
        if self.verdict in (Verdict.UNJUDGED, Verdict.OPEN, Verdict.COMPLETE):
            return self.verdict.value
        return ", ".join(map(str, self.findings))
