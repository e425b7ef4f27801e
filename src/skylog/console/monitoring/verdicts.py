"""The verdicts of the overview: is anything unhealthy, not replicated, lost, late or stuck? Pure.

Each links to a page with details. Without current data a verdict is `unknown`, never `good`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, Final, Literal, NamedTuple

from skylog.client import ClusterDescription
from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot
from skylog.console.monitoring.pace import GroupProgress
from skylog.console.rendering import formatting

State = Literal["good", "late", "bad", "unknown"]
Summary = Mapping[str, Any] | None
"""A summary of the audit or of the jobs; None if there is no audit or no job."""

_MAX_NAMES: Final = 3


class OverviewVerdict(NamedTuple):
    """`state` is also a CSS class. `description` is one sentence."""

    name: str
    state: State
    description: str
    link: str

    def document(self) -> dict[str, str]:
        return self._asdict()


def health(problem: str | None, report: Mapping[str, Any] | None) -> OverviewVerdict:
    """Judge the health report of the parent broker or, without one, whether the cluster responds."""
    problems = [problem] if problem else list(report["problems"]) if report else []
    link = f"/brokers/{report['node_id']}" if report and "node_id" in report and not problem else "/health"
    if problems:
        return OverviewVerdict("Health", "bad", "; ".join(problems), link)
    warnings = list(report.get("warnings", ())) if report else []
    if warnings:
        return OverviewVerdict("Health", "late", "; ".join(warnings), link)
    description = "The broker responds and reports no problem." if report else "The cluster responds."
    return OverviewVerdict("Health", "good", description, link)


def replicas(cluster: ClusterDescription | None, problem: str | None) -> OverviewVerdict:
    """Partitions without a leader, missing brokers and replicas that are not in sync."""
    if cluster is None or problem:
        return OverviewVerdict("Replicas", "unknown", "There is no current description of the cluster.", "/cluster")
    state, sentences = _replica_problems(cluster)
    if sentences:
        return OverviewVerdict("Replicas", state, " ".join(sentences), "/cluster")
    count = len(cluster.partitions)
    if not count:
        return OverviewVerdict("Replicas", "good", "There are no partitions yet.", "/cluster")
    whole = "The only partition has" if count == 1 else f"All {count:,} partitions have"
    is_replicated = any(len(each.replicas) > 1 for each in cluster.partitions)
    rest = "a leader and all replicas in sync." if is_replicated else "a leader, and no copies on other brokers."
    return OverviewVerdict("Replicas", "good", f"{whole} {rest}", "/cluster")


def _replica_problems(cluster: ClusterDescription) -> tuple[State, list[str]]:
    sentences = []
    offline = [str(each.partition) for each in cluster.offline]
    if offline:
        verb = "has" if len(offline) == 1 else "have"
        sentences.append(f"{_names(offline)} {verb} no leader: nobody can read or write.")
    if cluster.controller_id < 0:
        sentences.append("There is no controller, so no leader can be elected.")
    state: State = "bad" if sentences else "late"
    missing = [str(each) for each in cluster.missing_broker_ids]
    if missing:
        who = f"Broker {missing[0]} is" if len(missing) == 1 else f"Brokers {_names(missing)} are"
        sentences.append(f"{who} missing.")
    behind = len([each for each in cluster.under_replicated if not each.is_offline])
    if behind:
        partitions = "One partition has" if behind == 1 else f"{behind:,} partitions have"
        sentences.append(f"{partitions} replicas that are not in sync.")
    return state, sentences


def lost(audit: Summary) -> OverviewVerdict:
    """Lost and duplicated messages of the last day, according to the audit."""
    if audit is None:
        return OverviewVerdict("Lost", "unknown", "There is no audit: no tier has published counts.", "/audit")
    counts: Mapping[str, int] = audit["windows"]
    lost, duplicated = counts.get("lost", 0), counts.get("duplicated", 0)
    if lost or duplicated:
        verdicts = f"{lost} lost, {duplicated} duplicated"
        description = f"The counts of {_windows(lost + duplicated)} of the last day do not balance: {verdicts}."
        return OverviewVerdict("Lost", "bad", description, "/audit?problems=1")
    if audit["problem"]:
        return OverviewVerdict("Lost", "unknown", f"The audit cannot be read: {audit['problem']}", "/audit")
    if audit["as_of_ms"] is None:
        return OverviewVerdict("Lost", "unknown", "The audit is being read.", "/audit")
    judged = counts.get("complete", 0) + counts.get("late", 0)
    if not judged:
        return OverviewVerdict("Lost", "unknown", "No window of the last day can be judged yet.", "/audit")
    return OverviewVerdict("Lost", "good", f"The counts of {_windows(judged)} of the last day balance.", "/audit")


def late(
    audit: Summary, snapshot: ClusterSnapshot, progress: Mapping[str, GroupProgress], problem: str | None
) -> OverviewVerdict:
    """Windows that wait for a reader, according to the audit, and groups that fall behind or are far behind."""
    found = []
    behind = [name for name, each in progress.items() if each.pace in ("falling behind", "stuck") or each.is_far_behind]
    if behind and not problem:
        description = _describe_behind(behind, snapshot, progress)
        found.append(OverviewVerdict("Late", "late", description, _groups_link(behind)))
    count = audit["windows"].get("late", 0) if audit else 0
    if count:
        verb = "waits" if count == 1 else "wait"
        description = f"{_windows(count).capitalize()} of the last day {verb} for a reader."
        found.append(OverviewVerdict("Late", "late", description, "/audit?problems=1"))
    if found:
        return _combined(found)
    if reason := _no_data(snapshot, progress, problem):
        return OverviewVerdict("Late", "unknown", reason, "/groups")
    if not snapshot.groups:
        return OverviewVerdict("Late", "unknown", "There are no consumer groups yet.", "/groups")
    unknown = [name for name, each in progress.items() if each.pace == "unknown"]
    if unknown:
        description = f"It is not known yet whether {_names(unknown)} {_verb(unknown, 'keeps', 'keep')} up."
        return OverviewVerdict("Late", "unknown", description, _groups_link(unknown, "unknown"))
    return OverviewVerdict("Late", "good", _describe_keeping_up(snapshot, progress), "/groups")


def _describe_behind(names: Sequence[str], snapshot: ClusterSnapshot, progress: Mapping[str, GroupProgress]) -> str:
    worst = max(names, key=lambda name: snapshot.groups[name].lag)
    found = progress[worst]
    lag = f"{formatting.count(snapshot.groups[worst].lag)} messages, {formatting.age(found.lag_ms, found.is_estimated)}"
    if found.pace == "stuck":
        text = f"{worst} does not read: {lag}."
    elif found.pace != "falling behind":
        text = f"{worst} keeps up, but does not work off its lag: {lag}."
    else:
        rates = f"it reads {formatting.rate(found.commits_per_s)} of {formatting.rate(found.appends_per_s)}"
        text = f"{worst} falls behind: {lag}; {rates}."
    others = len(names) - 1
    return text + (f" {_verb(range(others), 'One other is', f'{others:,} others are')} late, too." if others else "")


def _describe_keeping_up(snapshot: ClusterSnapshot, progress: Mapping[str, GroupProgress]) -> str:
    """Describe groups of which none is late."""
    catching = [name for name, each in progress.items() if each.pace == "catching up"]
    if catching:
        longest_ms = max(progress[name].left_ms or 0 for name in catching)
        lag = formatting.count(sum(snapshot.groups[name].lag for name in catching))
        verb = _verb(catching, "catches", "catch")
        return f"{_names(catching)} {verb} up: {lag} messages, worked off in {formatting.duration(longest_ms)}."
    total = sum(group.lag for group in snapshot.groups.values())
    if not total:
        return "No message waits for a reader."
    ages = [each.lag_ms for each in progress.values()]
    known = [age for age in ages if age is not None]
    longest = f", at most {formatting.duration(max(known))}" if len(known) == len(ages) else ""
    return f"Groups are {formatting.count(total)} messages behind{longest}, and keep up."


def stuck(
    snapshot: ClusterSnapshot, progress: Mapping[str, GroupProgress], problem: str | None, jobs: Summary
) -> OverviewVerdict:
    """Groups with lag that committed nothing for a minute, and jobs that failed or stopped reporting."""
    job_problems = list(jobs["problems"]) if jobs else []
    found = []
    if job_problems:
        description = "; ".join(job_problems[:_MAX_NAMES])
        description += "" if description.endswith(".") else "."
        found.append(OverviewVerdict("Stuck", "bad", description, "/pipelines"))
    reason = _no_data(snapshot, progress, problem)
    if reason and not found:
        return OverviewVerdict("Stuck", "unknown", reason, "/groups")
    found += [] if reason else _stuck_groups(snapshot, progress)
    if found:
        return _combined(found)
    unknown = [name for name, each in progress.items() if each.pace == "unknown"]
    if unknown:
        description = f"It is not known yet whether {_names(unknown)} {_verb(unknown, 'makes', 'make')} progress."
        return OverviewVerdict("Stuck", "unknown", description, _groups_link(unknown, "unknown"))
    return OverviewVerdict("Stuck", "good", "Every group with messages to read makes progress.", "/groups")


def _stuck_groups(snapshot: ClusterSnapshot, progress: Mapping[str, GroupProgress]) -> list[OverviewVerdict]:
    """Return a verdict on groups with members, on groups without, and on groups that are stuck in some partitions."""
    found = []
    stalled = [name for name, each in progress.items() if each.pace == "stuck"]
    active = [name for name in stalled if snapshot.groups[name].members]
    if active:
        have = _verb(active, "has members and messages to read, but has", "have members and messages to read, but have")
        description = f"{_names(active)} {have} committed nothing for a minute."
        found.append(OverviewVerdict("Stuck", "bad", description, _groups_link(active, "stuck")))
    left = [name for name in stalled if name not in active]
    if left:
        description = f"{_names(left)} {_verb(left, 'has', 'have')} messages to read, but no members."
        found.append(OverviewVerdict("Stuck", "late", description, _groups_link(left, "stuck")))
    partly = [name for name, each in progress.items() if each.stalled and name not in stalled]
    if partly:
        where = _names(str(key) for name in partly for key in progress[name].stalled)
        verb = _verb(partly, "has", "have")
        description = f"{_names(partly)} {verb} messages to read in {where}, but committed nothing there for a minute."
        found.append(OverviewVerdict("Stuck", "late", description, _groups_link(partly, "stuck")))
    return found


def _combined(found: Sequence[OverviewVerdict]) -> OverviewVerdict:
    """Return one verdict with the state and the link of the worst, which comes first."""
    return found[0]._replace(description=" ".join(each.description for each in found))


def _groups_link(names: Sequence[str], pace: str | None = None) -> str:
    """Return the page of the only group, or the list of those with this pace, by default of all."""
    if len(names) == 1:
        return formatting.link("/group", name=names[0])
    return formatting.link("/groups", pace=pace) if pace else "/groups"


def _no_data(snapshot: ClusterSnapshot, progress: Mapping[str, GroupProgress], problem: str | None) -> str | None:
    """Why the groups cannot be judged, or None if they can."""
    if not snapshot.taken_at_ms or problem:
        return "There is no current snapshot of the cluster."
    if len(progress) < len(snapshot.groups):
        return "There are more groups and topics than the console can monitor."
    return None


def _verb(subjects: Sized, one: str, several: str) -> str:
    return one if len(subjects) == 1 else several


def _windows(count: int) -> str:
    return "one window" if count == 1 else f"{count:,} windows"


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _MAX_NAMES
    return ", ".join(listed[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
