"""What the books say of a window, as a document and in words. Pure."""

from __future__ import annotations

from typing import Any, Final

from skylog.audit.report import Tier
from skylog.audit.verdict import Balance, Finding, Verdict

MEANINGS: Final = {
    Verdict.LOST: "A tier has fewer messages than the one before it, and will get no more of them.",
    Verdict.DUPLICATED: "A tier has more messages than the one before it: some were counted there more than once.",
    Verdict.LATE: "A reader has not come so far yet. Nothing is lost; it is complete once the reader gets there.",
    Verdict.COMPLETE: "All that were compared have the same number of messages.",
    Verdict.OPEN: "The window has ended less than two minutes ago, or not yet: reports may still be on their way.",
    Verdict.UNJUDGED: "Only one tier has counted, so there is nothing to compare it with.",
}


def balance_document(balance: Balance) -> dict[str, Any]:
    return {
        "topic": balance.topic,
        "window_start_ms": balance.window_start_ms,
        "window_end_ms": balance.window_end_ms,
        "produced": balance.produced,
        "stored": balance.stored,
        "consumed": dict(balance.consumed),
        "landed": dict(balance.landed),
        "bytes": {
            "produced": balance.sizes.produced,
            "stored": balance.sizes.stored,
            "consumed": dict(balance.sizes.consumed),
            "landed": dict(balance.sizes.landed),
        },
        "verdict": balance.verdict.value,
        "findings": [finding_document(finding) for finding in balance.findings],
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "tier": finding.tier.value,
        "source": finding.source,
        "verdict": finding.verdict.value,
        "messages": finding.messages,
    }


def sentence(finding: Finding) -> str:
    """A finding in words."""
    number = f"{finding.messages:,} message{'' if finding.messages == 1 else 's'}"
    is_one = finding.messages == 1
    match finding.tier, finding.verdict:
        case Tier.CONSUMED, Verdict.LOST:
            return f"Group {finding.source} went past {number} without reading {'it' if is_one else 'them'}."
        case Tier.CONSUMED, Verdict.DUPLICATED:
            return f"Group {finding.source} has read {number} more than there are."
        case Tier.CONSUMED, _:
            return f"Group {finding.source} still has to read {number}."
        case Tier.LANDED, Verdict.LOST:
            return f"{number} {'is' if is_one else 'are'} missing in table {finding.source}."
        case Tier.LANDED, Verdict.DUPLICATED:
            return f"Table {finding.source} has {number} more than there are."
        case Tier.LANDED, _:
            return f"{number} {'has' if is_one else 'have'} not landed in table {finding.source} yet."
        case _, Verdict.DUPLICATED:
            return f"The brokers have stored {number} more than producers have counted."
        case _:
            return f"{number} that producers have counted {'is' if is_one else 'are'} not stored."
