"""What the overview says, from looks and histories that are put together by hand."""

from __future__ import annotations

import pytest

from skylog.client import ConsumerGroup, GroupMember, GroupPartition, OffsetRange
from skylog.console import verdicts
from skylog.console.history import History
from skylog.console.watch import Look, figures
from skylog.model import TopicPartition

MEMBER = GroupMember("id", "client", "host", None, (TopicPartition("t", 0),))


def look(time_ms: int, committed: int, end: int, *, has_member: bool = True) -> Look:
    partition = GroupPartition(TopicPartition("t", 0), committed, OffsetRange(0, end), MEMBER if has_member else None)
    members = (MEMBER,) if has_member else ()
    return Look(time_ms, groups={"g": ConsumerGroup("g", "Stable", "range", members, (partition,))})


def watched(*looks: Look) -> tuple[Look, History]:
    history, before = History(), Look(0)
    for each in looks:
        history.record(each.taken_at_ms, figures(before, each))
        before = each
    return before, history


def test_a_group_that_commits_nothing_for_a_minute_while_messages_wait_is_stuck() -> None:
    seen = watched(*(look(time_ms, 5, 10) for time_ms in range(1000, 62_000, 5000)))
    verdict = verdicts.stuck(*seen, None)
    assert (verdict.state, verdict.link) == ("bad", "/groups")
    assert "g has members" in verdict.told


def test_a_group_without_members_that_has_messages_to_read_wants_attention() -> None:
    seen = watched(*(look(time_ms, 5, 10, has_member=False) for time_ms in range(1000, 62_000, 5000)))
    assert verdicts.stuck(*seen, None).state == "late"


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
    assert verdicts.stuck(*watched(*looks), None).state == "good"


def test_a_lag_that_only_grows_for_a_minute_is_late() -> None:
    seen = watched(*(look(time_ms, time_ms // 1000, time_ms // 100) for time_ms in range(1000, 72_000, 5000)))
    assert verdicts.late(None, *seen).state == "late"


def test_a_lag_that_falls_is_not_late() -> None:
    seen = watched(*(look(time_ms, time_ms // 100, 10_000) for time_ms in range(1000, 72_000, 5000)))
    assert verdicts.late(None, *seen).state == "good"


def test_jobs_that_failed_are_stuck() -> None:
    verdict = verdicts.stuck(Look(1), History(), {"problems": ["land has failed: no space"]})
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
    assert verdicts.lost({"windows": windows}).state == state


def test_without_an_audit_nobody_knows_what_is_lost() -> None:
    assert verdicts.lost(None).state == "unknown"


def test_windows_that_wait_for_a_reader_are_late() -> None:
    assert verdicts.late({"windows": {"late": 1}}, Look(1), History()).state == "late"


def test_a_broker_that_has_problems_or_does_not_answer_is_not_healthy() -> None:
    assert verdicts.health(None, {"problems": []}).state == "good"
    assert verdicts.health(None, {"problems": ["disk full"]}).told == "disk full"
    assert verdicts.health("no answer", None).state == "bad"
    assert verdicts.health(None, None).state == "good"
