"""Moving the replicas of a partition to other brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.cluster import BrokerImage, PartitionImage
from skylog.cluster.elections import ElectionRules
from skylog.cluster.image import NO_LEADER
from skylog.cluster.reassignment import advance, begin, cancel, target_of
from skylog.errors import ErrorCode, KafkaError

from .partition_world import check_state

RULES = ElectionRules(min_in_sync=2, allow_unclean=False)
BROKERS = {each: BrokerImage(each, "", 0) for each in range(1, 8)}
SETTLED = PartitionImage(1, 5, (1, 2, 3), (1, 2, 3))
MOVING = PartitionImage(1, 5, (4, 5, 1, 2, 3), (1, 2, 3), adding=(4, 5), removing=(2, 3))
"""On the way from 1, 2, 3 to 4, 5, 1."""


def moving(in_sync: tuple[int, ...], eligible: tuple[int, ...] = (), leader: int = 1) -> PartitionImage:
    return PartitionImage(leader, 5, (4, 5, 1, 2, 3), in_sync, eligible, adding=(4, 5), removing=(2, 3))


def without(*ids: int) -> dict[int, BrokerImage]:
    return {each: broker for each, broker in BROKERS.items() if each not in ids}


def test_a_reassignment_adds_the_target_and_keeps_the_rest_until_the_end() -> None:
    begun = begin(SETTLED, (4, 5, 1), BROKERS, RULES)
    assert begun == replace(MOVING, replicas=(4, 5, 1, 2, 3))
    assert target_of(begun) == (4, 5, 1)


def test_the_present_replicas_as_a_target_change_nothing() -> None:
    assert begin(SETTLED, (1, 2, 3), BROKERS, RULES) is SETTLED


def test_the_running_target_again_changes_nothing() -> None:
    assert begin(MOVING, (4, 5, 1), BROKERS, RULES) is MOVING


def test_another_order_takes_effect_immediately() -> None:
    assert begin(SETTLED, (3, 1, 2), BROKERS, RULES) == replace(SETTLED, replicas=(3, 1, 2))


def test_a_second_target_replaces_the_first() -> None:
    again = begin(MOVING, (1, 4, 6), BROKERS, RULES)
    assert again == PartitionImage(1, 6, (1, 4, 6, 2, 3), (1, 2, 3), adding=(4, 6), removing=(2, 3))


def test_a_leader_that_a_second_target_gives_up_is_replaced() -> None:
    again = begin(moving((4, 1, 2), leader=4), (1, 2, 6), BROKERS, RULES)
    assert again == PartitionImage(1, 6, (1, 2, 6, 3), (1, 2), adding=(6,), removing=(3,))


def test_the_original_replicas_as_a_target_end_the_reassignment() -> None:
    assert begin(MOVING, (1, 2, 3), BROKERS, RULES) == replace(SETTLED, leader_epoch=6)


@pytest.mark.parametrize("target", [(), (1, 1), (1, 2, 9), (1, -1)])
def test_a_target_has_different_live_brokers(target: tuple[int, ...]) -> None:
    with pytest.raises(KafkaError) as raised:
        begin(SETTLED, target, BROKERS, RULES)
    assert raised.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_target_may_keep_a_dead_replica() -> None:
    assert begin(SETTLED, (1, 3, 4), without(3), RULES).adding == (4,)


def test_a_cancelled_reassignment_gives_up_what_it_added() -> None:
    assert cancel(moving((1, 2, 3, 4)), BROKERS, RULES) == replace(SETTLED, leader_epoch=6)


def test_a_cancelled_reassignment_takes_the_leadership_from_what_it_added() -> None:
    cancelled = cancel(moving((1, 2, 4), leader=4), BROKERS, RULES)
    assert cancelled == PartitionImage(1, 6, (1, 2, 3), (1, 2))


def test_only_a_running_reassignment_is_cancelled() -> None:
    with pytest.raises(KafkaError) as raised:
        cancel(SETTLED, BROKERS, RULES)
    assert raised.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize(
    "partition", [moving((4, 5), leader=4), moving((1, 4)), moving((1,), (4,)), moving((4,), (5,), leader=NO_LEADER)]
)
def test_a_reassignment_is_not_cancelled_if_too_few_copies_would_be_left(partition: PartitionImage) -> None:
    with pytest.raises(KafkaError, match="are required") as raised:
        cancel(partition, BROKERS, RULES)
    assert raised.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(KafkaError, match="are required"):
        begin(partition, (1, 2, 6), BROKERS, RULES)


def test_a_reassignment_is_not_cancelled_if_that_takes_the_partition_offline() -> None:
    partition = moving((4,), (2, 3), leader=4)
    with pytest.raises(KafkaError, match="one must be live"):
        cancel(partition, without(2, 3), replace(RULES, allow_unclean=True))
    assert cancel(partition, without(2), RULES).leader == 3


def test_a_reassignment_that_has_copied_nothing_yet_can_always_be_cancelled() -> None:
    assert cancel(moving((1,)), BROKERS, RULES) == PartitionImage(1, 6, (1, 2, 3), (1,))
    offline = moving((1,), leader=NO_LEADER)
    assert cancel(offline, without(1), RULES) == PartitionImage(NO_LEADER, 6, (1, 2, 3), (1,))


def test_a_reassignment_waits_for_the_whole_target() -> None:
    partition = moving((1, 2, 3, 4))
    assert advance(partition, BROKERS, RULES) is partition
    assert advance(SETTLED, BROKERS, RULES) is SETTLED


def test_a_reassignment_waits_for_a_target_that_has_died() -> None:
    partition = moving((1, 2, 4, 5))
    assert advance(partition, without(5), RULES) is partition


def test_a_reassignment_is_complete_when_the_target_is_in_sync() -> None:
    assert advance(moving((1, 3, 4, 5)), BROKERS, RULES) == PartitionImage(1, 6, (4, 5, 1), (1, 4, 5))


def test_a_removed_leader_is_replaced_by_the_first_of_the_target() -> None:
    assert advance(moving((1, 2, 4, 5), leader=2), BROKERS, RULES) == PartitionImage(4, 6, (4, 5, 1), (1, 4, 5))


def test_fewer_replicas_are_complete_at_once() -> None:
    begun = begin(SETTLED, (2,), BROKERS, RULES)
    assert begun == PartitionImage(1, 5, (2, 1, 3), (1, 2, 3), removing=(1, 3))
    assert advance(begun, BROKERS, RULES) == PartitionImage(2, 6, (2,), (2,))


def test_a_replica_that_leaves_ends_the_leader_epoch_and_one_that_comes_does_not() -> None:
    assert begin(SETTLED, (1, 2, 3, 4), BROKERS, RULES).leader_epoch == 5
    assert begin(SETTLED, (1, 2), BROKERS, RULES).leader_epoch == 5, "broker 3 leaves at the end"
    shrunk = advance(begin(SETTLED, (1, 2), BROKERS, RULES), BROKERS, RULES)
    assert (shrunk.leader, shrunk.leader_epoch) == (1, 6)
    grown = advance(PartitionImage(1, 5, (1, 2), (1, 2), adding=(2,)), BROKERS, RULES)
    assert grown == PartitionImage(1, 5, (1, 2), (1, 2))


IDS = st.integers(1, 7)
TARGETS = st.lists(IDS, min_size=1, max_size=4, unique=True)


@given(targets=st.lists(TARGETS, min_size=1, max_size=3), joined=st.sets(IDS), live=st.sets(IDS), data=st.data())
def test_every_step_is_sound_and_a_cancelled_reassignment_is_as_before(
    targets: list[list[int]], joined: set[int], live: set[int], data: st.DataObject
) -> None:
    partition = SETTLED
    for target in targets:
        partition = begin(partition, target, BROKERS, RULES)
        check_state(partition, RULES)
        assert target_of(partition) == tuple(target)
        assert set(partition.replicas) - set(partition.adding) == {1, 2, 3}
    if partition.is_reassigned and data.draw(st.booleans()):
        assert set(cancel(partition, BROKERS, RULES).replicas) == {1, 2, 3}
    in_sync = (*SETTLED.in_sync_replicas, *sorted(joined & set(partition.adding)))
    brokers = {each: BROKERS[each] for each in live | {1}}
    ended = advance(replace(partition, in_sync_replicas=in_sync), brokers, RULES)
    check_state(ended, RULES)
    if set(targets[-1]) <= set(in_sync) & brokers.keys():
        assert ended.replicas == tuple(targets[-1])
        assert not ended.is_reassigned
