"""Is anything lost, late or stuck? What the overview says first, each with a page that tells more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from skylog.console import words
from skylog.console.history import History
from skylog.console.trend import trend
from skylog.console.watch import COMMITTED, LAG, Look

State = Literal["good", "late", "bad", "unknown"]

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


def lost(summary: Mapping[str, Any] | None) -> Verdict:
    """What the audit misses, or has twice, in the last day."""
    if summary is None:
        return Verdict("Lost", "unknown", "There is no audit: nobody has counted.", "/audit")
    counts: Mapping[str, int] = summary["windows"]
    wrong = counts.get("lost", 0) + counts.get("duplicated", 0)
    if wrong:
        return Verdict("Lost", "bad", f"{_windows(wrong)} of the last day do not balance.", "/audit?problems=1")
    judged = counts.get("complete", 0) + counts.get("late", 0)
    if not judged:
        return Verdict("Lost", "unknown", "No window of the last day could be judged yet.", "/audit")
    return Verdict("Lost", "good", f"The books of {_windows(judged)} of the last day balance.", "/audit")


def late(summary: Mapping[str, Any] | None, look: Look, history: History) -> Verdict:
    """What readers have not come to: by the audit, and groups whose lag has grown over the last minutes."""
    count = summary["windows"].get("late", 0) if summary else 0
    trends = {name: trend(history.points((LAG, name))) for name in look.groups}
    growing = [name for name, each in trends.items() if each == "growing"]
    if count:
        return Verdict("Late", "late", f"{_windows(count)} of the last day wait for a reader.", "/audit?problems=1")
    if growing:
        return Verdict("Late", "late", f"The lag of {_names(growing)} grows.", "/groups")
    total = sum(group.lag for group in look.groups.values())
    if not look.groups:
        return Verdict("Late", "unknown", "Nobody reads yet.", "/groups")
    behind = f"Groups are {words.count(total)} messages behind" + (" and keep up." if any(trends.values()) else ".")
    return Verdict("Late", "good", behind, "/groups")


def stuck(look: Look, history: History, jobs: Mapping[str, Any] | None) -> Verdict:
    """Groups with messages to read that have not moved for a minute, and jobs that failed or fell silent."""
    wrong_jobs = list(jobs["problems"]) if jobs else []
    if wrong_jobs:
        return Verdict("Stuck", "bad", "; ".join(wrong_jobs[:_NAMED]), "/pipelines")
    still = [
        group.name
        for group in look.groups.values()
        if group.lag and history.unchanged_ms((COMMITTED, group.name)) >= STUCK_MS
    ]
    active = [name for name in still if look.groups[name].members]
    if active:
        told = f"{_names(active)} has members and messages to read, and has committed nothing for a minute."
        return Verdict("Stuck", "bad", told, "/groups")
    if still:
        return Verdict("Stuck", "late", f"Nobody reads for {_names(still)}, and messages wait.", "/groups")
    return Verdict("Stuck", "good", "Every group with messages to read moves.", "/groups")


def _windows(count: int) -> str:
    return "one window" if count == 1 else f"{count:,} windows"


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")
