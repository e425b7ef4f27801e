"""The balance of a window as a JSON document, and its findings in words. Pure."""

from __future__ import annotations

from typing import Any, Final

from skylog.audit.report import Tier
from skylog.audit.verdict import Balance, Finding, Verdict

MEANINGS: Final = {
    Verdict.LOST: "A tier has fewer messages than the tier before it, and will not get the missing ones.",
    Verdict.DUPLICATED: "A tier has more messages than the tier before it: it counted some more than once.",
    Verdict.LATE: "A reader has not reached the window yet. Nothing is lost.",
    Verdict.COMPLETE: "All compared tiers have the same number of messages.",
    Verdict.OPEN: "The window has not ended, or ended less than two minutes ago. Reports may still arrive.",
    Verdict.UNJUDGED: "Only one tier has counted, so there is nothing to compare.",
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


def describe_finding(finding: Finding) -> str:
    """Return a finding as one sentence."""
    number = f"{finding.messages:,} message{'' if finding.messages == 1 else 's'}"
    is_one = finding.messages == 1
    match finding.tier, finding.verdict:
        case Tier.CONSUMED, Verdict.LOST:
            return f"Group {finding.source} skipped {number}."
        case Tier.CONSUMED, Verdict.DUPLICATED:
            return f"Group {finding.source} read {number} more than were stored."
        case Tier.CONSUMED, _:
            return f"Group {finding.source} has not read {number} yet."
        case Tier.LANDED, Verdict.LOST:
            return f"{number} {'is' if is_one else 'are'} missing in table {finding.source}."
        case Tier.LANDED, Verdict.DUPLICATED:
            return f"Table {finding.source} has {number} more than were stored."
        case Tier.LANDED, _:
            return f"{number} {'has' if is_one else 'have'} not landed in table {finding.source} yet."
        case _, Verdict.DUPLICATED:
            return f"Brokers stored {number} more than producers counted."
        case _:
            return f"{number} that producers counted {'is' if is_one else 'are'} not stored."
