"""What a description says about a cluster, plans of moves and their progress, without brokers."""

from __future__ import annotations

import pytest

from skylog.client import BrokerLoad, ClusterBroker, ClusterDescription, PartitionMove, PartitionState, Reassignment
from skylog.client.reassignment_plan import plan_drain, plan_spread
from skylog.client.reassignment_progress import ReassignmentTracker
from skylog.client.throttle import throttled_replicas
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from tests.present import present

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))


def brokers(*ids: int) -> tuple[ClusterBroker, ...]:
    return tuple(ClusterBroker(each, "host", 9092, None) for each in ids)


def described(
    live: tuple[int, ...], *partitions: PartitionState, moving: tuple[Reassignment, ...] = ()
) -> ClusterDescription:
    return ClusterDescription("c", live[0], brokers(*live), partitions, moving)


def test_a_replica_that_is_not_in_sync_counts_unless_a_reassignment_adds_it() -> None:
    assert PartitionState(FIRST, 1, (1, 2), (1, 2)).missing_replicas == ()
    assert PartitionState(FIRST, 1, (1, 2, 3), (1,), (3,)).missing_replicas == (2, 3)
    moving = PartitionState(FIRST, 1, (1, 2, 3), (1, 2), adding_replicas=(3,))
    assert not moving.is_under_replicated


def test_the_load_of_missing_brokers_is_known() -> None:
    cluster = described(
        (1, 2),
        PartitionState(FIRST, 1, (1, 3), (1,), (3,)),
        PartitionState(SECOND, -1, (3,), (3,), (3,)),
    )
    assert cluster.loads() == {1: BrokerLoad(1, 1, 0), 2: BrokerLoad(0, 0, 0), 3: BrokerLoad(0, 2, 1)}
    assert cluster.missing_broker_ids == [3]
    assert [each.partition for each in cluster.offline] == [SECOND]
    assert [each.partition for each in cluster.under_replicated] == [FIRST]
    assert [each.partition for each in cluster.problems] == [FIRST, SECOND]
    assert present(cluster.partition(SECOND)).is_offline
    assert cluster.partition(THIRD) is None


def test_the_target_of_a_reassignment_is_without_what_it_removes() -> None:
    assert Reassignment(FIRST, (4, 2, 1), (4,), (1,)).target == (4, 2)


# -- plans


def test_a_plan_is_the_same_each_time_and_lists_only_what_changes() -> None:
    partitions = [PartitionState(TopicPartition("t", number), 1, (1, 2), (1, 2)) for number in range(9)]
    cluster = described((1, 2, 3), *partitions)
    plan = plan_spread(cluster, ["t"], [1, 2, 3], None)
    assert [plan_spread(cluster, ["t"], [1, 2, 3], None) for _ in range(5)] == [plan] * 5
    assert plan.copies == 6
    assert 6 <= len(plan.moves) < 9


def test_a_plan_continues_from_the_target_of_a_reassignment_under_way() -> None:
    state = PartitionState(FIRST, 1, (3, 1), (1,), adding_replicas=(3,))
    cluster = described((1, 2, 3), state, moving=(Reassignment(FIRST, (3, 1), (3,), (1,)),))
    assert plan_spread(cluster, ["t"], [3], None).moves == ()
    assert plan_drain(cluster, 1).moves == ()


def test_a_drain_of_an_unknown_broker_names_the_known_ones() -> None:
    cluster = described((1, 2), PartitionState(FIRST, 1, (1, 9), (1,), (9,)))
    with pytest.raises(SkylogError, match="no broker 7; the brokers are 1, 2, 9"):
        plan_drain(cluster, 7)
    assert plan_drain(cluster, 9).targets == {FIRST: (1, 2)}


def test_a_drain_without_enough_brokers_is_rejected() -> None:
    cluster = described((1, 2), PartitionState(FIRST, 1, (1, 2), (1, 2)))
    with pytest.raises(KafkaError) as caught:
        plan_drain(cluster, 2)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_plan_can_include_reassignments_under_way() -> None:
    cluster = described((1, 2), PartitionState(FIRST, 1, (1,), (1,)), PartitionState(SECOND, 1, (2, 1), (1,)))
    plan = plan_spread(cluster, ["t"], [2], 1)
    moving = [Reassignment(FIRST, (2, 1), (2,), (1,)), Reassignment(THIRD, (3, 1, 2), (3,), (2,))]
    assert plan.including(moving).moves == (*plan.moves, PartitionMove(THIRD, (1, 2), (3, 1)))


# -- throttles


def test_the_replicas_of_a_moved_partition_send_and_the_added_ones_receive() -> None:
    moves = [
        PartitionMove(FIRST, (1, 2), (2, 3)),
        PartitionMove(SECOND, (1, 2), (2, 1)),
        PartitionMove(TopicPartition("u", 5), (1,), (1, 2, 3)),
    ]
    assert throttled_replicas(moves) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        },
        "u": {
            "leader.replication.throttled.replicas": "5:1",
            "follower.replication.throttled.replicas": "5:2,5:3",
        },
    }


# -- progress


def test_a_partition_is_done_when_it_has_its_target_and_does_not_move() -> None:
    tracker = ReassignmentTracker({FIRST: (2,), SECOND: (2,)}, patience_s=5)
    moving = [Reassignment(SECOND, (2, 1), (2,), (1,))]
    progress = tracker.update(moving, {FIRST: (2,), SECOND: (2, 1)}, 0)
    assert (progress.done, progress.is_over) == (1, False)
    moving = [Reassignment(SECOND, (2,), (2,), ())]
    assert not tracker.update(moving, {FIRST: (2,), SECOND: (2,)}, 1).is_over
    progress = tracker.update([], {FIRST: (2,), SECOND: (2,)}, 1)
    assert (progress.done, progress.is_over, progress.abandoned) == (2, True, ())


def test_a_partition_that_stays_without_its_target_is_abandoned_after_a_while() -> None:
    tracker = ReassignmentTracker({FIRST: (2,), SECOND: (2,)}, patience_s=5)
    assert not tracker.update([], {FIRST: (1,)}, 0).is_over
    assert not tracker.update([Reassignment(FIRST, (2, 1), (2,), (1,))], {FIRST: (2, 1)}, 4).is_over
    progress = tracker.update([], {FIRST: (1,)}, 5)
    assert progress.abandoned == (SECOND,)
    assert not progress.is_over
    assert tracker.update([], {FIRST: (1,)}, 10).abandoned == (FIRST, SECOND)
