"""Is anything lost, late or stuck? What the overview says first, each with a page that tells more. Pure.

What nobody has looked at is not known; it is never called good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from skylog.console import words
from skylog.console.history import History
from skylog.console.trend import LONGEST_MS, trend
from skylog.console.watch import COMMITTED, LAG, Look

State = Literal["good", "late", "bad", "unknown"]
Summary = Mapping[str, Any] | None
"""Of the audit or of the jobs; None where there is nothing of the kind. `problem` says why it is not up to date."""

STUCK_MS: Final = 60_000
_NAMED: Final = 3


class Verdict(NamedTuple):
    """`state` is a class of the style sheet too; `told` is a sentence."""

    name: str
    state: State
    told: str
    link: str

    def document(self) -> dict[str, str]:
        return self._asdict()


def health(problem: str | None, told: Mapping[str, Any] | None) -> Verdict:
    """Of the broker beside, which tells itself; of any other cluster, that it answers."""
    problems = [problem] if problem else list(told["problems"]) if told else []
    if problems:
        return Verdict("Health", "bad", "; ".join(problems), "/health")
    answer = "The broker answers and has no problem." if told else "The cluster answers."
    return Verdict("Health", "good", answer, "/health")


def lost(audit: Summary) -> Verdict:
    """What the audit misses, or has twice, in the last day."""
    if audit is None:
        return Verdict("Lost", "unknown", "There is no audit: nobody has counted.", "/audit")
    counts: Mapping[str, int] = audit["windows"]
    wrong = counts.get("lost", 0) + counts.get("duplicated", 0)
    if wrong:
        return Verdict("Lost", "bad", f"{_windows(wrong)} of the last day do not balance.", "/audit?problems=1")
    if audit["problem"]:
        return Verdict("Lost", "unknown", f"The audit cannot be read: {audit['problem']}", "/audit")
    if audit["as_of_ms"] is None:
        return Verdict("Lost", "unknown", "The audit is being read.", "/audit")
    judged = counts.get("complete", 0) + counts.get("late", 0)
    if not judged:
        return Verdict("Lost", "unknown", "No window of the last day could be judged yet.", "/audit")
    return Verdict("Lost", "good", f"The books of {_windows(judged)} of the last day balance.", "/audit")


def late(audit: Summary, look: Look, history: History, problem: str | None) -> Verdict:
    """What readers have not come to: by the audit, and groups whose lag has grown over the last minutes."""
    count = audit["windows"].get("late", 0) if audit else 0
    if count:
        return Verdict("Late", "late", f"{_windows(count)} of the last day wait for a reader.", "/audit?problems=1")
    if unseen := _unseen(look, history, problem):
        return Verdict("Late", "unknown", unseen, "/groups")
    trends = {name: trend(history.points((LAG, name), LONGEST_MS)) for name in look.groups}
    growing = [name for name, each in trends.items() if each == "growing"]
    if growing:
        return Verdict("Late", "late", f"The lag of {_names(growing)} grows.", "/groups")
    if not look.groups:
        return Verdict("Late", "unknown", "Nobody reads yet.", "/groups")
    total = sum(group.lag for group in look.groups.values())
    behind = f"Groups are {words.count(total)} messages behind" + (" and keep up." if any(trends.values()) else ".")
    return Verdict("Late", "good", behind, "/groups")


def stuck(look: Look, history: History, problem: str | None, jobs: Summary) -> Verdict:
    """Groups with messages to read that have not moved for a minute, and jobs that failed or fell silent."""
    wrong_jobs = list(jobs["problems"]) if jobs else []
    if wrong_jobs:
        return Verdict("Stuck", "bad", "; ".join(wrong_jobs[:_NAMED]), "/pipelines")
    if unseen := _unseen(look, history, problem):
        return Verdict("Stuck", "unknown", unseen, "/groups")
    still = [name for name in look.groups if _stands_still(history, name)]
    active = [name for name in still if look.groups[name].members]
    if active:
        told = f"{_names(active)} has members and messages to read, and has committed nothing for a minute."
        return Verdict("Stuck", "bad", told, "/groups")
    if still:
        return Verdict("Stuck", "late", f"Nobody reads for {_names(still)}, and messages wait.", "/groups")
    return Verdict("Stuck", "good", "Every group with messages to read moves.", "/groups")


def _stands_still(history: History, group: str) -> bool:
    """Whether there has been something to read for a minute, and nothing was committed all the while."""
    if history.unchanged_ms((COMMITTED, group)) < STUCK_MS:
        return False
    return all(lag > 0 for _, lag in history.points((LAG, group), STUCK_MS))


def _unseen(look: Look, history: History, problem: str | None) -> str | None:
    """Why nothing can be said of the groups, if so."""
    if not look.taken_at_ms or problem:
        return "The cluster could not be looked at."
    if history.is_full:
        return "There are more groups and topics than are followed here."
    return None


def _windows(count: int) -> str:
    return "one window" if count == 1 else f"{count:,} windows"


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")
