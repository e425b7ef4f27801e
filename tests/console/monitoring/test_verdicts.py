"""The verdicts of the overview, from snapshots and histories made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skylog.client import (
    ClusterBroker,
    ClusterDescription,
    ConsumerGroup,
    GroupMember,
    GroupPartition,
    OffsetRange,
    Partition,
    PartitionState,
    Topic,
)
from skylog.console.monitoring import history as history_module
from skylog.console.monitoring import verdicts
from skylog.console.monitoring.cluster_snapshot import ClusterSnapshot
from skylog.console.monitoring.figures import LAG, figures
from skylog.console.monitoring.history import History
from skylog.console.monitoring.pace import GroupProgress, judge
from skylog.model import TopicPartition

MEMBER = GroupMember("id", "client", "host", None, (TopicPartition("t", 0),))


def snapshot(time_ms: int, committed: int, end: int, *, has_member: bool = True) -> ClusterSnapshot:
    partition = GroupPartition(TopicPartition("t", 0), committed, OffsetRange(0, end), MEMBER if has_member else None)
    members = (MEMBER,) if has_member else ()
    return ClusterSnapshot(time_ms, groups={"g": ConsumerGroup("g", "Stable", "range", members, (partition,))})


def audit(windows: dict[str, int], problem: str | None = None, as_of_ms: int | None = 1) -> dict[str, object]:
    return {"windows": windows, "problem": problem, "as_of_ms": as_of_ms}


Monitored = tuple[ClusterSnapshot, dict[str, GroupProgress]]


def monitored(*snapshots: ClusterSnapshot) -> Monitored:
    history, before = History(), ClusterSnapshot(0)
    for each in snapshots:
        history.record(each.taken_at_ms, figures(before, each))
        before = each
    known = {name: group for name, group in before.groups.items() if history.last((LAG, name)) is not None}
    return before, {name: judge(group, history) for name, group in known.items()}


def test_a_group_that_commits_nothing_for_a_minute_while_messages_wait_is_stuck() -> None:
    seen = monitored(*(snapshot(time_ms, 5, 10) for time_ms in range(1000, 62_000, 5000)))
    verdict = verdicts.stuck(*seen, None, None)
    assert (verdict.state, verdict.link) == ("bad", "/group?name=g")
    assert "g has members" in verdict.description


def test_a_group_without_members_that_has_messages_to_read_needs_attention() -> None:
    seen = monitored(*(snapshot(time_ms, 5, 10, has_member=False) for time_ms in range(1000, 62_000, 5000)))
    assert verdicts.stuck(*seen, None, None).state == "late"


@pytest.mark.parametrize(
    "snapshots",
    [
        [snapshot(time_ms, 10, 10) for time_ms in range(1000, 62_000, 5000)],
        [snapshot(time_ms, time_ms // 1000, 100) for time_ms in range(1000, 62_000, 5000)],
    ],
    ids=["caught up", "moves"],
)
def test_groups_that_have_caught_up_or_move_are_not_stuck(snapshots: list[ClusterSnapshot]) -> None:
    assert verdicts.stuck(*monitored(*snapshots), None, None).state == "good"


def test_with_less_than_a_minute_of_history_a_group_with_lag_is_not_judged() -> None:
    seen = monitored(snapshot(1000, 5, 10), snapshot(6000, 6, 11))
    assert verdicts.stuck(*seen, None, None).state == "unknown"
    late = verdicts.late(None, *seen, None)
    assert (late.state, late.description) == ("unknown", "It is not known yet whether g keeps up.")


def test_a_slow_reader_of_a_busy_topic_is_late_however_large_its_lag_is_already() -> None:
    """40 messages per second of 200: in eight minutes the lag grows by a third only."""
    seen = monitored(*(snapshot(1000 + s * 1000, 40 * s, 203_464 + 200 * s) for s in range(0, 480, 5)))
    verdict = verdicts.late(None, *seen, None)
    assert verdict.state == "late"
    lag = "279,464 messages, about 23 min 17 s behind"
    assert verdict.description == f"g falls behind: {lag}; it reads 40/s of 200/s."


def test_a_verdict_on_several_groups_leads_to_the_list_of_them_and_all_problems_are_named() -> None:
    def both(second: int) -> ClusterSnapshot:
        one = snapshot(1000 + second * 1000, 5, 10).groups["g"]
        return ClusterSnapshot(1000 + second * 1000, groups={"g": one, "h": replace(one, name="h")})

    seen = monitored(*map(both, range(0, 70, 5)))
    late = verdicts.late(None, *seen, None)
    assert (late.state, late.link) == ("late", "/groups")
    assert late.description == "g does not read: 5 messages, for an unknown time. One other is late, too."
    verdict = verdicts.stuck(*seen, None, None)
    assert verdict.link == "/groups?pace=stuck"
    assert verdict.description.startswith("g, h have members")
    verdict = verdicts.stuck(*seen, None, {"problems": ["land has failed"]})
    assert (verdict.link, "land has failed. g, h have" in verdict.description) == ("/pipelines", True)


def test_a_group_that_keeps_up_far_behind_is_late() -> None:
    seen = monitored(*(snapshot(1000 + s * 1000, 200 * s, 203_464 + 200 * s) for s in range(0, 480, 5)))
    verdict = verdicts.late(None, *seen, None)
    assert verdict.state == "late"
    assert "keeps up, but does not work off its lag: 203,464 messages, about 16 min 57 s" in verdict.description


def test_a_partition_in_which_a_group_is_stuck_is_named_while_the_group_moves_in_others() -> None:
    def both(second: int) -> ClusterSnapshot:
        partitions = tuple(
            GroupPartition(TopicPartition("t", number), committed, OffsetRange(0, 10 * second), MEMBER)
            for number, committed in ((0, 10 * second), (1, 5))
        )
        groups = {"g": ConsumerGroup("g", "Stable", "range", (MEMBER,), partitions)}
        return ClusterSnapshot(1000 + second * 1000, groups=groups)

    verdict = verdicts.stuck(*monitored(*map(both, range(5, 90, 5))), None, None)
    assert (verdict.state, "in t-1," in verdict.description) == ("late", True)


def test_a_lag_that_only_grows_for_a_minute_is_late() -> None:
    seen = monitored(*(snapshot(time_ms, time_ms // 1000, time_ms // 100) for time_ms in range(1000, 72_000, 5000)))
    assert verdicts.late(None, *seen, None).state == "late"


def test_a_lag_that_falls_is_not_late() -> None:
    seen = monitored(*(snapshot(time_ms, time_ms // 100, 10_000) for time_ms in range(1000, 72_000, 5000)))
    assert verdicts.late(None, *seen, None).state == "good"


def test_jobs_that_failed_are_stuck() -> None:
    verdict = verdicts.stuck(ClusterSnapshot(1), {}, None, {"problems": ["land has failed: no space"]})
    assert (verdict.state, verdict.description, verdict.link) == ("bad", "land has failed: no space.", "/pipelines")


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
def test_the_audit_decides_what_is_lost(windows: dict[str, int], state: str) -> None:
    assert verdicts.lost(audit(windows)).state == state


def test_duplicated_messages_are_not_called_lost() -> None:
    description = verdicts.lost(audit({"duplicated": 2, "complete": 5})).description
    assert description == "The counts of 2 windows of the last day do not balance: 0 lost, 2 duplicated."


def test_without_an_audit_losses_are_unknown() -> None:
    assert verdicts.lost(None).state == "unknown"


def test_windows_that_wait_for_a_reader_are_late() -> None:
    assert verdicts.late(audit({"late": 1}), ClusterSnapshot(1), {}, None).state == "late"


def test_a_broker_that_has_problems_or_does_not_answer_is_not_healthy() -> None:
    assert verdicts.health(None, {"problems": []}).state == "good"
    assert verdicts.health(None, {"problems": ["disk full"], "node_id": 7}).link == "/brokers/7"
    assert verdicts.health(None, {"problems": ["disk full"]}).description == "disk full"
    assert verdicts.health(None, {"problems": [], "warnings": ["out of sync"]}).state == "late"
    assert verdicts.health(None, {"problems": ["disk full"], "warnings": ["out of sync"]}).state == "bad"
    assert verdicts.health("no answer", None).state == "bad"
    assert verdicts.health(None, None).state == "good"


def test_without_a_snapshot_groups_are_not_judged() -> None:
    for taken, problem in ((ClusterSnapshot(0), None), (snapshot(1000, 5, 5), "no broker can be reached")):
        assert verdicts.late(None, taken, {}, problem).state == "unknown"
        assert verdicts.stuck(taken, {}, problem, None).state == "unknown"


def test_where_there_are_too_many_groups_to_monitor_nothing_is_called_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_SERIES", 0)
    seen = monitored(snapshot(1000, 5, 5))
    assert verdicts.late(None, *seen, None).state == "unknown"
    assert verdicts.stuck(*seen, None, None).state == "unknown"


def test_an_audit_that_cannot_be_read_or_is_being_read_is_not_called_good() -> None:
    assert verdicts.lost(audit({"complete": 5}, problem="no broker")).state == "unknown"
    assert verdicts.lost(audit({}, as_of_ms=None)).description == "The audit is being read."
    assert verdicts.lost(audit({"lost": 1}, problem="no broker")).state == "bad"


def test_a_new_message_in_a_quiet_topic_makes_no_group_stuck() -> None:
    quiet = [snapshot(time_ms, 5, 5) for time_ms in range(1000, 90_000, 5000)]
    assert verdicts.stuck(*monitored(*quiet, snapshot(95_000, 5, 6)), None, None).state == "good"


def test_a_partition_that_comes_back_is_no_flood() -> None:
    topic = Topic("t", (Partition(0, 1, (1,), (1,)), Partition(1, 1, (1,), (1,))))
    first = ClusterSnapshot(1000, {"t": topic}, {TopicPartition("t", 0): OffsetRange(0, 10)})
    ranges = {TopicPartition("t", 0): OffsetRange(0, 15), TopicPartition("t", 1): OffsetRange(0, 10**9)}
    assert figures(first, ClusterSnapshot(6000, {"t": topic}, ranges))["messages_in", "t"] == 1.0


# -- replicas


def cluster(*partitions: PartitionState, live: tuple[int, ...] = (1, 2), controller: int = 1) -> ClusterDescription:
    brokers = tuple(ClusterBroker(node_id, "host", 9092, None) for node_id in live)
    return ClusterDescription("c", controller, brokers, partitions)


def partition(
    number: int, leader: int, replicas: tuple[int, ...], in_sync: tuple[int, ...], offline: tuple[int, ...] = ()
) -> PartitionState:
    return PartitionState(TopicPartition("t", number), leader, replicas, in_sync, offline)


@pytest.mark.parametrize(
    ("found", "state", "description"),
    [
        (cluster(), "good", "There are no partitions yet."),
        (
            cluster(partition(0, 1, (1, 2), (1, 2)), partition(1, 2, (2, 1), (1, 2))),
            "good",
            "All 2 partitions have a leader and all replicas in sync.",
        ),
        (
            cluster(partition(0, 1, (1,), (1,))),
            "good",
            "The only partition has a leader, and no copies on other brokers.",
        ),
        (cluster(partition(0, 1, (1, 2), (1,))), "late", "One partition has replicas that are not in sync."),
        (
            cluster(partition(0, 1, (1, 3), (1,), (3,)), partition(1, 2, (2, 4), (2,), (4,))),
            "late",
            "Brokers 3, 4 are missing. 2 partitions have replicas that are not in sync.",
        ),
        (
            cluster(partition(0, -1, (3,), (3,), (3,)), partition(1, -1, (3,), (3,), (3,))),
            "bad",
            "t-0, t-1 have no leader: nobody can read or write. Broker 3 is missing.",
        ),
        (
            cluster(partition(0, 1, (1,), (1,)), controller=-1),
            "bad",
            "There is no controller, so no leader can be elected.",
        ),
    ],
)
def test_the_description_of_the_cluster_decides_about_replicas(
    found: ClusterDescription, state: str, description: str
) -> None:
    verdict = verdicts.replicas(found, None)
    assert (verdict.state, verdict.description, verdict.link) == (state, description, "/cluster")


def test_without_a_current_description_replicas_are_not_judged() -> None:
    assert verdicts.replicas(None, None).state == "unknown"
    assert verdicts.replicas(cluster(), "no broker can be reached").state == "unknown"


def test_messages_are_counted_for_the_broker_that_leads_their_partition() -> None:
    topic = Topic("t", (Partition(0, 1, (1,), (1,)), Partition(1, -1, (2,), (2,))))
    before = ClusterSnapshot(1000, {"t": topic}, dict.fromkeys(topic.topic_partitions, OffsetRange(0, 10)))
    after = ClusterSnapshot(6000, {"t": topic}, dict.fromkeys(topic.topic_partitions, OffsetRange(0, 60)))
    found = figures(before, after)
    assert (found["broker_messages_in", "1"], found["broker_messages_in", "2"]) == (10.0, 0.0)
