"""Whether a consumer group keeps up, judged by rates: its commits against the appends to the partitions it reads. Pure.

The lag alone says little: of 200,000 messages, 40,000 more in some minutes are easily overlooked. So the messages
appended and committed are added up over the last one, three and ten minutes. The shortest time in which they differ by
more than noise decides. Commits come in steps, so a difference of a few steps, or of ten seconds' work, is noise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final, Literal, NamedTuple

from skylog.client import ConsumerGroup, GroupPartition
from skylog.console.monitoring.figures import APPENDED, COMMITTED, LAG, READ
from skylog.console.monitoring.history import History, Points
from skylog.model import TopicPartition

STUCK_MS: Final = 60_000
SHORTEST_MS: Final = 55_000  # a minute, less one snapshot
LONG_LAG_MS: Final = 300_000  # a group that keeps up is late nevertheless if it is this far behind
_SPANS_MS: Final = (60_000, 180_000, 600_000)
_NOISE_S: Final = 10.0
_NOISE_STEPS: Final = 1.5
_NOISE_MESSAGES: Final = 10

Pace = Literal["caught up", "keeping up", "catching up", "falling behind", "stuck", "unknown"]
PACES: Final[tuple[Pace, ...]] = ("stuck", "falling behind", "unknown", "keeping up", "catching up", "caught up")
"""All paces, the worst first."""


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How a group gets on. Rates are None if they are not known yet.

    `lag_ms` is the age of the oldest message to read, None if it is not known. It is an estimate from the rate of
    appends if that message is older than the history. `left_ms` is the time until a group that catches up has no lag.
    `stalled` are partitions with messages to read and no commit for a minute. `expired` is the number of messages that
    were deleted before the group has read them.
    """

    pace: Pace
    appends_per_s: float | None = None
    commits_per_s: float | None = None
    lag_ms: float | None = None
    is_estimated: bool = False
    left_ms: float | None = None
    stalled: tuple[TopicPartition, ...] = ()
    expired: int = 0

    @property
    def is_far_behind(self) -> bool:
        """Whether the group keeps up, but so far behind that it would never work off its lag."""
        return self.pace == "keeping up" and self.lag_ms is not None and self.lag_ms > LONG_LAG_MS


def judge(group: ConsumerGroup, history: History) -> GroupProgress:
    """Judge a group as of the latest snapshot in the history."""
    balance = _balance(group.name, history)
    lag_ms, is_estimated = _lag_ms(group, history, balance.appends_per_s)
    pace = _pace(group, history, balance)
    left_ms = None
    if pace == "catching up" and balance.appends_per_s is not None and balance.commits_per_s is not None:
        left_ms = group.lag / (balance.commits_per_s - balance.appends_per_s) * 1000
    stalled = tuple(each.partition for each in group.partitions if _is_stalled(history, *_names(group.name, each)))
    return GroupProgress(
        pace,
        balance.appends_per_s,
        balance.commits_per_s,
        lag_ms,
        is_estimated,
        left_ms,
        stalled,
        sum(map(_expired, group.partitions)),
    )


class _Balance(NamedTuple):
    """`growth` is positive if the lag grows, negative if it shrinks, 0 if there is only noise, None if not known."""

    appends_per_s: float | None = None
    commits_per_s: float | None = None
    growth: int | None = None


def _balance(name: str, history: History) -> _Balance:
    """Compare appends and commits over the shortest time in which they differ by more than noise."""
    steps = [count for _, count in history.points((READ, name), _SPANS_MS[-1]) if count]
    step = median(steps) if steps else 0.0
    found = _Balance()
    for span_ms in _SPANS_MS:
        appended, committed = history.points((APPENDED, name), span_ms), history.points((READ, name), span_ms)
        seconds = (appended[-1][0] - appended[0][0]) / 1000 if appended else 0.0
        if seconds * 1000 < SHORTEST_MS:
            break
        into, out = _total(appended), _total(committed)
        noise = max(_NOISE_MESSAGES, step * _NOISE_STEPS, max(into, out) / seconds * _NOISE_S)
        growth = (into > out) - (into < out) if abs(into - out) > noise else 0
        found = _Balance(into / seconds, out / seconds, growth)
        if growth:
            break
    return found


def _total(counts: Points) -> float:
    """Add up counts. The first is of the time before the first point."""
    return sum(count for _, count in counts[1:])


def _pace(group: ConsumerGroup, history: History, balance: _Balance) -> Pace:
    if not group.lag:
        return "caught up"
    if balance.growth is None:
        return "unknown"
    if _is_stalled(history, group.name):
        has_read = any(each.committed_offset is not None for each in group.partitions)
        # Without a commit and without appends, it may have started at the end and have nothing to read.
        return "stuck" if has_read or balance.appends_per_s else "unknown"
    return ("keeping up", "falling behind", "catching up")[balance.growth]


def _is_stalled(history: History, *name: str) -> bool:
    """Whether a group, or a partition of it, has had messages to read for a minute and committed nothing."""
    if history.unchanged_ms((COMMITTED, *name)) < STUCK_MS:
        return False
    return all(lag > 0 for _, lag in history.points((LAG, *name), STUCK_MS))


def _lag_ms(group: ConsumerGroup, history: History, appends_per_s: float | None) -> tuple[float | None, bool]:
    """Return the age of the oldest message to read, and whether it is an estimate."""
    ages = [_age_ms(each, history, *_names(group.name, each)) for each in group.partitions if each.lag]
    measured = [age for age in ages if age is not None]
    if len(measured) == len(ages):
        return max(measured, default=0.0), False
    if not appends_per_s:
        return None, False
    return max(group.lag / appends_per_s * 1000, *measured, 0.0), True


def _age_ms(each: GroupPartition, history: History, *name: str) -> float | None:
    """Return the time since the log ended at the committed offset, None if that was before the history."""
    if each.committed_offset is None or _expired(each):
        return None
    return history.since_sum_ms(((COMMITTED, *name), (LAG, *name)), each.committed_offset)


def _expired(each: GroupPartition) -> int:
    if each.offsets is None or each.committed_offset is None:
        return 0
    return max(each.offsets.start_offset - each.committed_offset, 0)


def _names(group: str, each: GroupPartition) -> tuple[str, str, str]:
    return group, each.partition.topic, str(each.partition.partition)


def progress_document(progress: GroupProgress | None) -> dict[str, Any]:
    """Return the fields that the documents of groups share. None is a group that is not monitored."""
    found = progress or GroupProgress("unknown")
    return asdict(found) | {
        "stalled": [key._asdict() for key in found.stalled],
        "is_far_behind": found.is_far_behind,
    }
