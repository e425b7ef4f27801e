"""What the overview says, from looks and histories that are put together by hand."""

from __future__ import annotations

import pytest

from skylog.client import ConsumerGroup, GroupMember, GroupPartition, OffsetRange, Partition, Topic
from skylog.console import verdicts
from skylog.console.history import History
from skylog.console.watch import Look, figures
from skylog.model import TopicPartition

MEMBER = GroupMember("id", "client", "host", None, (TopicPartition("t", 0),))


def look(time_ms: int, committed: int, end: int, *, has_member: bool = True) -> Look:
    partition = GroupPartition(TopicPartition("t", 0), committed, OffsetRange(0, end), MEMBER if has_member else None)
    members = (MEMBER,) if has_member else ()
    return Look(time_ms, groups={"g": ConsumerGroup("g", "Stable", "range", members, (partition,))})


def audit(windows: dict[str, int], problem: str | None = None, as_of_ms: int | None = 1) -> dict[str, object]:
    return {"windows": windows, "problem": problem, "as_of_ms": as_of_ms}


def watched(*looks: Look) -> tuple[Look, History]:
    history, before = History(), Look(0)
    for each in looks:
        history.record(each.taken_at_ms, figures(before, each))
        before = each
    return before, history


def test_a_group_that_commits_nothing_for_a_minute_while_messages_wait_is_stuck() -> None:
    seen = watched(*(look(time_ms, 5, 10) for time_ms in range(1000, 62_000, 5000)))
    verdict = verdicts.stuck(*seen, None, None)
    assert (verdict.state, verdict.link) == ("bad", "/groups")
    assert "g has members" in verdict.told


def test_a_group_without_members_that_has_messages_to_read_wants_attention() -> None:
    seen = watched(*(look(time_ms, 5, 10, has_member=False) for time_ms in range(1000, 62_000, 5000)))
    assert verdicts.stuck(*seen, None, None).state == "late"


@pytest.mark.parametrize(
    "looks",
    [
        [look(time_ms, 10, 10) for time_ms in range(1000, 62_000, 5000)],
        [look(time_ms, time_ms // 1000, 100) for time_ms in range(1000, 62_000, 5000)],
        [look(1000, 5, 10), look(6000, 5, 10)],
    ],
    ids=["caught up", "moves", "too early to say"],
)
def test_groups_that_have_caught_up_or_move_are_not_stuck(looks: list[Look]) -> None:
    assert verdicts.stuck(*watched(*looks), None, None).state == "good"


def test_a_lag_that_only_grows_for_a_minute_is_late() -> None:
    seen = watched(*(look(time_ms, time_ms // 1000, time_ms // 100) for time_ms in range(1000, 72_000, 5000)))
    assert verdicts.late(None, *seen, None).state == "late"


def test_a_lag_that_falls_is_not_late() -> None:
    seen = watched(*(look(time_ms, time_ms // 100, 10_000) for time_ms in range(1000, 72_000, 5000)))
    assert verdicts.late(None, *seen, None).state == "good"


def test_jobs_that_failed_are_stuck() -> None:
    verdict = verdicts.stuck(Look(1), History(), None, {"problems": ["land has failed: no space"]})
    assert (verdict.state, verdict.told, verdict.link) == ("bad", "land has failed: no space", "/pipelines")


@pytest.mark.parametrize(
    ("windows", "state"),
    [
        ({"lost": 1, "complete": 5}, "bad"),
        ({"duplicated": 2}, "bad"),
        ({"complete": 5}, "good"),
        ({"open": 1}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_audit_says_what_is_lost(windows: dict[str, int], state: str) -> None:
    assert verdicts.lost(audit(windows)).state == state


def test_without_an_audit_nobody_knows_what_is_lost() -> None:
    assert verdicts.lost(None).state == "unknown"


def test_windows_that_wait_for_a_reader_are_late() -> None:
    assert verdicts.late(audit({"late": 1}), Look(1), History(), None).state == "late"


def test_a_broker_that_has_problems_or_does_not_answer_is_not_healthy() -> None:
    assert verdicts.health(None, {"problems": []}).state == "good"
    assert verdicts.health(None, {"problems": ["disk full"]}).told == "disk full"
    assert verdicts.health("no answer", None).state == "bad"
    assert verdicts.health(None, None).state == "good"


def test_what_nobody_has_looked_at_is_not_known() -> None:
    for look_, problem in ((Look(0), None), (look(1000, 5, 5), "no broker can be reached")):
        assert verdicts.late(None, look_, History(), problem).state == "unknown"
        assert verdicts.stuck(look_, History(), problem, None).state == "unknown"


def test_where_there_are_too_many_groups_to_follow_nothing_is_called_good() -> None:
    seen, history = watched(look(1000, 5, 5))
    history.is_full = True
    assert verdicts.late(None, seen, history, None).state == "unknown"
    assert verdicts.stuck(seen, history, None, None).state == "unknown"


def test_an_audit_that_cannot_be_read_or_is_being_read_is_not_called_good() -> None:
    assert verdicts.lost(audit({"complete": 5}, problem="no broker")).state == "unknown"
    assert verdicts.lost(audit({}, as_of_ms=None)).told == "The audit is being read."
    assert verdicts.lost(audit({"lost": 1}, problem="no broker")).state == "bad"


def test_a_message_that_has_just_come_to_a_quiet_topic_makes_nobody_stuck() -> None:
    quiet = [look(time_ms, 5, 5) for time_ms in range(1000, 90_000, 5000)]
    assert verdicts.stuck(*watched(*quiet, look(95_000, 5, 6)), None, None).state == "good"


def test_a_partition_that_comes_back_is_no_flood() -> None:
    topic = Topic("t", (Partition(0, 1, (1,), (1,)), Partition(1, 1, (1,), (1,))))
    first = Look(1000, {"t": topic}, {TopicPartition("t", 0): OffsetRange(0, 10)})
    ranges = {TopicPartition("t", 0): OffsetRange(0, 15), TopicPartition("t", 1): OffsetRange(0, 10**9)}
    assert figures(first, Look(6000, {"t": topic}, ranges))["messages_in", "t"] == 1.0
