"""Decisions about leaders and in-sync sets, one at a time. `test_partition_lives` tests them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.cluster import BrokerImage, PartitionImage, TopicImage
from skylog.cluster.elections import (
    ElectionRules,
    expand,
    hand_over,
    imbalance,
    joining_offset,
    prefer,
    reconcile,
    resign,
    settle,
    shrink,
    unclean,
    withdraw,
)
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition

from .partition_world import check_state

TWO = ElectionRules(min_in_sync=2, allow_unclean=False)
ONE = ElectionRules(min_in_sync=1, allow_unclean=False)
HEALTHY = PartitionImage(1, 5, (1, 2, 3), (1, 2, 3))
OFFLINE = PartitionImage(NO_LEADER, 6, (1, 2, 3), ())


def live(*ids: int, stopping: Iterable[int] = ()) -> dict[int, BrokerImage]:
    return {each: BrokerImage(each, "", 0, incarnation=1, is_stopping=each in stopping) for each in ids}


def partition(leader: int, in_sync: tuple[int, ...], eligible: tuple[int, ...] = ()) -> PartitionImage:
    return PartitionImage(leader, 5, (1, 2, 3), in_sync, eligible)


# -- reconcile


def test_a_healthy_partition_stays_the_same_object() -> None:
    assert reconcile(HEALTHY, live(1, 2, 3), TWO) is HEALTHY


def test_a_dead_follower_leaves_the_in_sync_set_within_the_epoch() -> None:
    assert reconcile(HEALTHY, live(1, 2), TWO) == partition(1, (1, 2))


def test_a_live_leader_stays_although_it_is_not_the_first_replica() -> None:
    assert reconcile(partition(2, (1, 2, 3)), live(1, 2), TWO) == partition(2, (1, 2))


def test_a_dead_leader_is_replaced_by_the_first_replica_in_sync() -> None:
    assert reconcile(partition(1, (3, 1, 2)), live(2, 3), TWO) == replace(
        HEALTHY, leader=2, leader_epoch=6, in_sync_replicas=(3, 2)
    )


def test_replicas_that_leave_a_set_that_is_too_small_are_eligible() -> None:
    assert reconcile(HEALTHY, live(3), TWO) == PartitionImage(3, 6, (1, 2, 3), (3,), (1, 2))
    assert reconcile(HEALTHY, live(3), ONE) == PartitionImage(3, 6, (1, 2, 3), (3,), ())


def test_eligible_replicas_are_in_the_order_of_replicas() -> None:
    assert reconcile(partition(1, (3, 2, 1)), live(1), TWO) == partition(1, (1,), (2, 3))


def test_the_last_replicas_in_sync_stay_when_they_die() -> None:
    alone = partition(1, (1, 2))
    assert reconcile(alone, live(3), TWO) == replace(alone, leader=NO_LEADER, leader_epoch=6)


def test_an_offline_partition_stays_the_same_object_while_nothing_changes() -> None:
    offline = partition(NO_LEADER, (1, 2))
    assert reconcile(offline, live(3), TWO) is offline
    assert reconcile(OFFLINE, live(1, 2, 3), TWO) is OFFLINE


def test_an_offline_partition_gets_a_leader_when_a_replica_in_sync_returns() -> None:
    assert reconcile(partition(NO_LEADER, (1, 2)), live(2, 3), TWO) == PartitionImage(2, 6, (1, 2, 3), (2,), (1,))


def test_an_eligible_replica_is_elected_and_the_former_leader_is_eligible() -> None:
    assert reconcile(partition(1, (1,), (2, 3)), live(3), TWO) == PartitionImage(3, 6, (1, 2, 3), (3,), (1, 2))


def test_an_eligible_replica_is_elected_where_no_replica_is_in_sync() -> None:
    without = partition(NO_LEADER, (), (2,))
    assert reconcile(without, live(1, 2, 3), TWO) == PartitionImage(2, 6, (1, 2, 3), (2,), ())
    assert reconcile(without, live(1, 3), TWO) is without


def test_replicas_are_not_eligible_any_more_when_enough_are_in_sync() -> None:
    stale = partition(1, (1, 2), (3,))
    assert reconcile(stale, live(1, 2, 3), TWO) == partition(1, (1, 2))
    assert reconcile(stale, live(3), TWO).leader == NO_LEADER
    assert shrink(stale, [2], 5, TWO) == partition(1, (1,), (2,))
    assert resign(stale, 2, TWO) == replace(partition(1, (1,)), resigned=(2,))


def test_an_unclean_election_needs_permission() -> None:
    allowed = replace(TWO, allow_unclean=True)
    lost = partition(1, (1,), (2,))
    assert reconcile(lost, live(3), TWO).leader == NO_LEADER
    assert reconcile(lost, live(3), allowed) == PartitionImage(3, 6, (1, 2, 3), (3,), ())


def test_an_unclean_election_prefers_replicas_that_are_not_being_added() -> None:
    moving = PartitionImage(1, 5, (4, 1, 2), (1,), (), adding=(4,), removing=(1,))
    assert reconcile(moving, live(2, 4), replace(ONE, allow_unclean=True)).leader == 2


def test_a_stopping_leader_hands_over_and_leaves_the_in_sync_set() -> None:
    assert reconcile(HEALTHY, live(1, 2, 3, stopping=[1]), TWO) == PartitionImage(2, 6, (1, 2, 3), (2, 3))


def test_a_stopping_follower_leaves_the_in_sync_set() -> None:
    assert reconcile(partition(1, (1, 2)), live(1, 2, 3, stopping=[2]), TWO) == partition(1, (1,), (2,))


def test_a_stopping_leader_leads_on_if_no_other_can() -> None:
    alone = partition(1, (1,))
    assert reconcile(alone, live(1, 2, 3, stopping=[1]), ONE) is alone


def test_a_stopping_replica_is_elected_if_no_other_can() -> None:
    assert reconcile(partition(1, (1, 2)), live(2, 3, stopping=[2]), ONE).leader == 2


def test_a_replica_that_is_being_removed_is_elected_last() -> None:
    moving = PartitionImage(1, 5, (3, 4, 1, 2), (1, 2, 3), (), adding=(4,), removing=(1, 2))
    assert reconcile(moving, live(2, 3, 4), TWO).leader == 3
    assert reconcile(moving, live(2, 4), TWO).leader == 2


def test_not_more_replicas_are_required_than_there_are() -> None:
    assert replace(TWO, min_in_sync=5).required(HEALTHY) == 3
    growing = PartitionImage(1, 5, (1, 2, 3), (1,), (), adding=(2, 3))
    assert TWO.required(growing) == 1


def test_ten_thousand_healthy_partitions_take_little_time() -> None:
    brokers = live(1, 2, 3)
    began = perf_counter()
    for _ in range(10_000):
        reconcile(HEALTHY, brokers, TWO)
    assert perf_counter() - began < 1


def test_lowering_the_requirement_clears_the_eligible_replicas() -> None:
    low = partition(1, (1,), (2,))
    assert settle(low, TWO) is low
    assert settle(low, ONE) == partition(1, (1,))


# -- resign


def test_a_broker_that_starts_gives_up_leadership_and_membership() -> None:
    assert resign(HEALTHY, 1, TWO) == PartitionImage(NO_LEADER, 6, (1, 2, 3), (2, 3), resigned=(1,))


def test_a_follower_that_starts_leaves_within_the_epoch_and_is_not_eligible() -> None:
    assert resign(partition(1, (1, 2)), 2, TWO) == replace(partition(1, (1,)), resigned=(2,))


def test_an_eligible_replica_that_starts_is_not_eligible_any_more() -> None:
    assert resign(partition(1, (1,), (2, 3)), 2, TWO) == replace(partition(1, (1,), (3,)), resigned=(2,))


def test_a_replica_that_is_copied_again_leaves_in_another_epoch() -> None:
    """So the leader does not know any more how far the replica was, and cannot add it before it has begun to copy."""
    assert withdraw(HEALTHY, 2, TWO) == PartitionImage(1, 6, (1, 2, 3), (1, 3), emptied=(2,))
    assert withdraw(partition(1, (1, 3)), 2, TWO) == PartitionImage(1, 6, (1, 2, 3), (1, 3), emptied=(2,))


def test_a_leader_that_is_copied_again_gives_up_its_leadership() -> None:
    assert withdraw(HEALTHY, 1, TWO) == PartitionImage(NO_LEADER, 6, (1, 2, 3), (2, 3), emptied=(1,))


def test_a_replica_is_not_copied_again_if_too_few_others_are_in_sync() -> None:
    for low in (partition(1, (1, 2)), partition(1, (1,), (2,)), partition(1, (1,))):
        assert withdraw(low, 1, TWO) is low


def test_a_leader_hands_over_to_the_first_candidate_that_is_in_sync_and_live() -> None:
    low = partition(1, (1, 2))
    assert hand_over(low, 1, [3, 2], live(1, 2, 3)) == replace(low, leader=2, leader_epoch=6)
    assert hand_over(low, 1, [3], live(1, 2, 3)) is low
    assert hand_over(low, 1, [2], live(1, 3)) is low
    assert hand_over(low, 1, [2], live(1, 2, stopping=[2])) is low
    assert hand_over(low, 2, [1], live(1, 2)) is low, "it does not lead"


def test_the_last_replica_in_sync_leaves_if_another_is_eligible() -> None:
    resigned = resign(partition(1, (1,), (2,)), 1, TWO)
    assert resigned == PartitionImage(NO_LEADER, 6, (1, 2, 3), (), (2,), resigned=(1,))


def test_the_last_complete_replica_stays() -> None:
    assert resign(partition(1, (1,)), 1, TWO) == PartitionImage(NO_LEADER, 6, (1, 2, 3), (1,))
    eligible = partition(NO_LEADER, (), (2,))
    assert resign(eligible, 2, TWO) is eligible


@pytest.mark.parametrize("last", [partition(1, (1,)), partition(NO_LEADER, (), (1,))])
def test_kafka_14139_the_last_replica_in_sync_does_not_lead_after_it_lost_its_disk(last: PartitionImage) -> None:
    lost = resign(last, 1, TWO, has_lost_data=True)
    assert (lost.leader, lost.in_sync_replicas, lost.eligible_replicas) == (NO_LEADER, (), ())
    assert reconcile(lost, live(1, 2, 3), TWO).leader == NO_LEADER
    assert unclean(lost, live(1, 2, 3), TWO).leader == 2, "the others have some of the log"
    assert unclean(lost, live(1), TWO).leader == 1


def test_kafka_15586_a_broker_that_crashed_is_not_elected_before_one_that_did_not() -> None:
    both_down = partition(NO_LEADER, (1, 2))
    after = resign(both_down, 1, TWO)
    assert reconcile(after, live(1, 3), TWO).leader == NO_LEADER
    assert reconcile(after, live(1, 2, 3), TWO).leader == 2


def test_an_intact_broker_gives_up_only_its_leadership() -> None:
    assert resign(HEALTHY, 1, TWO, is_intact=True) == PartitionImage(NO_LEADER, 6, (1, 2, 3), (1, 2, 3))
    low = partition(1, (1,), (2,))
    assert resign(low, 2, TWO, is_intact=True) is low


def test_a_broker_without_data_is_not_intact() -> None:
    assert resign(HEALTHY, 2, TWO, is_intact=True, has_lost_data=True) == replace(partition(1, (1, 3)), emptied=(2,))


def test_a_broker_outside_the_in_sync_set_changes_nothing_when_it_starts() -> None:
    low = partition(1, (1, 2))
    assert resign(low, 3, TWO) is low


# -- expand and shrink


def test_a_follower_joins_and_the_eligible_ones_are_cleared() -> None:
    low = partition(1, (1,), (2,))
    assert expand(low, 3, 1, 5, live(1, 2, 3), TWO) == partition(1, (1, 3))


def test_an_eligible_follower_joins_a_set_that_stays_too_small() -> None:
    three = replace(TWO, min_in_sync=3)
    assert expand(partition(1, (1,), (2, 3)), 2, 1, 5, live(1, 2, 3), three) == partition(1, (1, 2), (3,))


def test_a_member_does_not_join_again() -> None:
    assert expand(HEALTHY, 2, 1, 5, live(1, 2, 3), TWO) is HEALTHY


def test_kafka_13916_a_replica_that_is_dead_or_stopping_cannot_join() -> None:
    low = partition(1, (1, 2))
    for brokers in live(1, 2), live(1, 2, 3, stopping=[3]):
        with pytest.raises(KafkaError) as raised:
            expand(low, 3, 1, 5, brokers, TWO)
        assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_kafka_14617_a_former_incarnation_cannot_join() -> None:
    started_again = live(1, 2) | {3: BrokerImage(3, "", 0, incarnation=2)}
    with pytest.raises(KafkaError) as raised:
        expand(partition(1, (1, 2)), 3, 1, 5, started_again, TWO)
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_that_is_no_replica_cannot_join() -> None:
    with pytest.raises(KafkaError) as raised:
        expand(HEALTHY, 4, 1, 5, live(1, 2, 3, 4), TWO)
    assert raised.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_slow_followers_leave_and_the_leader_stays() -> None:
    assert shrink(HEALTHY, [2], 5, TWO) == partition(1, (1, 3))
    assert shrink(HEALTHY, [1, 2, 3], 5, TWO) == partition(1, (1,), (2, 3))
    assert shrink(HEALTHY, [1], 5, TWO) is HEALTHY


@pytest.mark.parametrize("now", [replace(HEALTHY, leader=2, leader_epoch=6), replace(HEALTHY, leader=NO_LEADER)])
def test_kafka_2729_a_former_leader_changes_nothing(now: PartitionImage) -> None:
    with pytest.raises(KafkaError) as raised:
        shrink(now, [3], 5, TWO)
    assert raised.value.code is ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as raised:
        expand(now, 3, 1, 5, live(1, 2, 3), TWO)
    assert raised.value.code is ErrorCode.FENCED_LEADER_EPOCH


def test_kafka_7128_a_follower_joins_at_the_start_of_the_epoch_if_the_watermark_lags() -> None:
    assert joining_offset(HEALTHY, TWO, high_watermark=7, epoch_start_offset=9, log_end_offset=20) == 9
    assert joining_offset(HEALTHY, TWO, high_watermark=12, epoch_start_offset=9, log_end_offset=20) == 12


def test_kafka_19996_a_follower_joins_at_the_end_while_the_watermark_stands_still() -> None:
    low = partition(1, (1,), (2,))
    assert joining_offset(low, TWO, high_watermark=7, epoch_start_offset=5, log_end_offset=1_000) == 1_000


# -- elections on request


def test_the_preferred_leader_is_the_first_replica() -> None:
    assert prefer(partition(2, (1, 2)), live(1, 2, 3)) == PartitionImage(1, 6, (1, 2, 3), (1, 2))


def test_the_preferred_leader_may_lead_already() -> None:
    with pytest.raises(KafkaError) as raised:
        prefer(HEALTHY, live(1, 2, 3))
    assert raised.value.code is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.parametrize(
    ("in_sync", "brokers"),
    [((2, 3), live(1, 2, 3)), ((1, 2), live(2, 3)), ((1, 2), live(1, 2, 3, stopping=[1]))],
)
def test_the_preferred_leader_must_be_live_in_sync_and_not_stopping(
    in_sync: tuple[int, ...], brokers: dict[int, BrokerImage]
) -> None:
    with pytest.raises(KafkaError) as raised:
        prefer(partition(2, in_sync), brokers)
    assert raised.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_on_request_needs_no_permission() -> None:
    assert unclean(partition(1, (1,)), live(2, 3), TWO) == PartitionImage(2, 6, (1, 2, 3), (2,))


def test_an_unclean_election_takes_a_complete_replica_if_there_is_one() -> None:
    assert unclean(partition(NO_LEADER, (1,), (3,)), live(2, 3), TWO).leader == 3


def test_a_partition_with_a_leader_needs_no_unclean_election() -> None:
    with pytest.raises(KafkaError) as raised:
        unclean(HEALTHY, live(1, 2, 3), TWO)
    assert raised.value.code is ErrorCode.ELECTION_NOT_NEEDED


def test_an_unclean_election_after_a_crash_of_all_takes_a_replica_that_was_complete() -> None:
    """The first replica has not been in sync for a long time. The last one in sync never returns."""
    crashed = partition(3, (2, 3))
    for node_id in (1, 2):
        crashed = resign(crashed, node_id, TWO)
    assert reconcile(crashed, live(1, 2), TWO).leader == NO_LEADER
    elected = unclean(crashed, live(1, 2), TWO)
    assert (elected.leader, elected.in_sync_replicas, elected.resigned) == (2, (2,), ())


def test_of_several_that_crashed_an_unclean_election_takes_the_last_one() -> None:
    """The others went on without those that crashed before."""
    crashed = HEALTHY
    for node_id in (1, 2):
        crashed = resign(crashed, node_id, TWO)
    assert unclean(crashed, live(1, 2), TWO).leader == 2
    assert unclean(resign(crashed, 2, TWO, has_lost_data=True), live(1, 2), TWO).leader == 1


def test_a_replica_that_was_in_sync_again_has_not_resigned_and_is_not_empty() -> None:
    returned = expand(resign(HEALTHY, 2, TWO), 2, 1, 5, live(1, 2, 3), TWO)
    assert returned == replace(HEALTHY, in_sync_replicas=(1, 3, 2))
    copied = expand(resign(HEALTHY, 2, TWO, has_lost_data=True), 2, 1, 5, live(1, 2, 3), TWO)
    assert copied == replace(HEALTHY, in_sync_replicas=(1, 3, 2))


def test_an_unclean_election_needs_a_live_replica() -> None:
    with pytest.raises(KafkaError) as raised:
        unclean(partition(NO_LEADER, (1,)), live(4), TWO)
    assert raised.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


# -- balance


def topic(name: str, *partitions: PartitionImage) -> dict[str, TopicImage]:
    return {name: TopicImage(name, uuid4(), partitions, {}, 1)}


def test_partitions_return_to_a_broker_that_leads_too_few_of_those_that_prefer_it() -> None:
    home, away = partition(1, (1, 2)), partition(2, (1, 2))
    topics = topic("t", *[home] * 8, away, away)
    assert imbalance(topics, live(1, 2, 3), percentage=20) == []
    assert imbalance(topics, live(1, 2, 3), percentage=10) == [TopicPartition("t", 8), TopicPartition("t", 9)]


def test_partitions_stay_away_from_a_broker_that_cannot_lead_them() -> None:
    not_in_sync, moving = partition(2, (2, 3)), replace(partition(2, (1, 2)), removing=(3,))
    topics = topic("t", not_in_sync, moving, partition(2, (1, 2)))
    assert imbalance(topics, live(1, 2, 3), percentage=0) == [TopicPartition("t", 2)]
    assert imbalance(topics, live(2, 3), percentage=0) == []


# -- what always holds

IDS = st.integers(1, 4)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(st.lists(IDS, min_size=1, unique=True))
    in_sync = [each for each in draw(st.permutations(replicas)) if draw(st.booleans())]
    eligible = [each for each in replicas if each not in in_sync and draw(st.booleans())]
    leader = draw(st.sampled_from([NO_LEADER, *in_sync]))
    return PartitionImage(leader, draw(st.integers(0, 9)), tuple(replicas), tuple(in_sync), tuple(eligible))


BROKERS = st.builds(lambda ids, stopping: live(*ids, stopping=stopping), st.sets(IDS), st.sets(IDS))
RULES = st.builds(ElectionRules, st.integers(1, 4), st.booleans())


@given(before=partitions(), brokers=BROKERS, rules=RULES)
def test_reconcile_returns_a_sound_state_and_has_nothing_more_to_do_then(
    before: PartitionImage, brokers: dict[int, BrokerImage], rules: ElectionRules
) -> None:
    after = reconcile(before, brokers, rules)
    check_state(after, rules)
    assert reconcile(after, brokers, rules) is after
    assert (after is before) == (after == before)
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader)
    assert after.leader == NO_LEADER or after.leader in brokers
    assert bool(after.in_sync_replicas) >= bool(before.in_sync_replicas)


@given(before=partitions(), brokers=BROKERS, rules=RULES)
def test_a_clean_election_elects_only_complete_replicas(
    before: PartitionImage, brokers: dict[int, BrokerImage], rules: ElectionRules
) -> None:
    before = settle(before, rules)
    after = reconcile(before, brokers, replace(rules, allow_unclean=False))
    complete = {*before.in_sync_replicas, *before.eligible_replicas}
    assert {*after.in_sync_replicas, *after.eligible_replicas} <= complete
    assert len({*after.in_sync_replicas, *after.eligible_replicas}) >= min(len(complete), rules.required(before))
    if complete & brokers.keys():
        can_lead = set(before.in_sync_replicas) & brokers.keys() or set(before.eligible_replicas) & brokers.keys()
        assert after.leader in can_lead


@given(before=partitions(), node_id=IDS, rules=RULES, has_lost_data=st.booleans(), is_intact=st.booleans())
def test_resign_takes_nothing_from_the_others(
    before: PartitionImage, node_id: int, rules: ElectionRules, has_lost_data: bool, is_intact: bool
) -> None:
    before = settle(before, rules)
    after = resign(before, node_id, rules, has_lost_data=has_lost_data, is_intact=is_intact)
    check_state(after, rules)
    assert after.leader != node_id
    assert after.leader_epoch == before.leader_epoch + (before.leader == node_id)
    complete = {*after.in_sync_replicas, *after.eligible_replicas}
    assert complete >= {*before.in_sync_replicas, *before.eligible_replicas} - {node_id}
    assert not (has_lost_data and node_id in complete)


@given(before=partitions(), node_ids=st.sets(IDS), rules=RULES)
def test_shrink_and_expand_return_sound_states(
    before: PartitionImage, node_ids: set[int], rules: ElectionRules
) -> None:
    before = settle(before, rules)
    if before.leader == NO_LEADER:
        return
    smaller = shrink(before, node_ids, before.leader_epoch, rules)
    check_state(smaller, rules)
    for node_id in node_ids & set(before.replicas):
        check_state(expand(smaller, node_id, 1, before.leader_epoch, live(1, 2, 3, 4), rules), rules)
