"""Plans that move replicas between brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from time import perf_counter
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.cluster import BrokerImage, ClusterImage, PartitionImage, TopicImage
from skylog.cluster.placement import place
from skylog.cluster.reassignment_plan import Targets, drain, spread
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition

Layout = dict[TopicPartition, tuple[int, ...]]


def image(
    assignment: Iterable[Sequence[int]], racks: Mapping[int, str | None], stopping: Iterable[int] = ()
) -> ClusterImage:
    partitions = tuple(PartitionImage(ids[0], 0, tuple(ids), tuple(ids)) for ids in assignment)
    brokers = {each: BrokerImage(each, "", 0, rack, is_stopping=each in stopping) for each, rack in racks.items()}
    return ClusterImage("c", 1, brokers, {"t": TopicImage("t", uuid4(), partitions, {}, 1)})


def plain(*ids: int) -> dict[int, str | None]:
    return dict.fromkeys(ids)


def layout(cluster: ClusterImage, targets: Targets) -> Layout:
    """Return the replicas of all partitions after a plan."""
    before = {
        TopicPartition(topic.name, index): partition.replicas
        for topic in cluster.topics.values()
        for index, partition in enumerate(topic.partitions)
    }
    return before | targets


def loads(replicas: Layout) -> Counter[int]:
    return Counter(each for ids in replicas.values() for each in ids)


def moved(cluster: ClusterImage, targets: Targets) -> int:
    before = layout(cluster, {})
    return sum(len(set(target) - set(before[partition])) for partition, target in targets.items())


# -- drain


def test_a_drained_broker_has_no_replicas_and_the_others_have_equally_many() -> None:
    cluster = image(place([(each, None) for each in range(1, 5)], 36, 3, Random(1)), plain(1, 2, 3, 4, 5))
    targets = drain(cluster, 5, Random(2))
    assert targets == {}
    targets = drain(cluster, 2, Random(2))
    assert moved(cluster, targets) == 27
    assert loads(layout(cluster, targets)) == {1: 27, 3: 27, 4: 27, 5: 27}


def test_only_the_drained_broker_is_replaced_and_at_its_place() -> None:
    cluster = image([(1, 2, 3)], plain(1, 2, 3, 4))
    assert drain(cluster, 2, Random(1)) == {TopicPartition("t", 0): (1, 4, 3)}


def test_a_dead_broker_can_be_drained_and_a_stopping_one_gets_nothing() -> None:
    cluster = image([(1, 2)] * 4, plain(1, 3, 4), stopping=[4])
    assert set(drain(cluster, 2, Random(1)).values()) == {(1, 3)}


def test_a_drained_replica_goes_to_another_rack_than_the_others() -> None:
    cluster = image([(1, 2)] * 6, {1: "a", 2: "b", 3: "a", 4: "b"})
    assert set(drain(cluster, 2, Random(1)).values()) == {(1, 4)}


def test_a_drained_leader_goes_to_the_broker_with_the_fewest_replicas_then_the_fewest_leaders() -> None:
    few_replicas = image([(9,), (3,), (1, 2), (1, 2)], plain(2, 3))
    assert drain(few_replicas, 9, Random(1)) == {TopicPartition("t", 0): (3,)}
    few_leaders = image([(9,), (3, 2)], plain(2, 3))
    assert {drain(few_leaders, 9, Random(each))[TopicPartition("t", 0)] for each in range(20)} == {(2,)}


def test_equally_loaded_brokers_are_chosen_at_random() -> None:
    cluster = image([(1,)], plain(1, 2, 3))
    assert {drain(cluster, 1, Random(each))[TopicPartition("t", 0)] for each in range(20)} == {(2,), (3,)}


def test_a_broker_is_not_drained_if_too_few_others_are_left() -> None:
    with pytest.raises(KafkaError, match="t-0 needs 3 brokers for 3 replicas") as raised:
        drain(image([(1, 2, 3)], plain(1, 2, 3)), 3, Random(1))
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_replica_that_is_being_removed_is_not_drained_again() -> None:
    cluster = image([(1, 2)], plain(1, 2, 3))
    partition = PartitionImage(1, 0, (1, 3, 2), (1, 2), adding=(3,), removing=(2,))
    topics = {"t": TopicImage("t", uuid4(), (partition,), {}, 1)}
    assert drain(cluster.with_topics(topics), 2, Random(1)) == {}
    assert drain(cluster.with_topics(topics), 3, Random(1)) == {TopicPartition("t", 0): (1, 2)}


# -- spread


def test_an_even_layout_stays_as_it_is() -> None:
    brokers = [(each, None) for each in range(1, 5)]
    cluster = image(place(brokers, 24, 3, Random(1)), dict(brokers))
    assert spread(cluster, [1, 2, 3, 4], Random(2)) == {}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    cluster = image(place([(each, None) for each in (1, 2, 3)], 40, 3, Random(1)), plain(1, 2, 3, 4))
    targets = spread(cluster, [1, 2, 3, 4], Random(2))
    assert moved(cluster, targets) == 30
    assert set(loads(layout(cluster, targets)).values()) == {30}
    assert set(Counter(ids[0] for ids in layout(cluster, targets).values()).values()) == {10}


def test_preferred_leaders_are_spread_without_moving_replicas() -> None:
    cluster = image([(1, 2, 3)] * 9, plain(1, 2, 3))
    targets = spread(cluster, [1, 2, 3], Random(1))
    assert moved(cluster, targets) == 0
    assert set(Counter(ids[0] for ids in layout(cluster, targets).values()).values()) == {3}


def test_replicas_leave_brokers_that_are_not_given_also_dead_ones() -> None:
    cluster = image([(9, 1)] * 6, plain(1, 2, 3))
    targets = spread(cluster, [2, 3], Random(1))
    assert loads(layout(cluster, targets)) == {2: 6, 3: 6}


def test_racks_come_before_even_loads() -> None:
    cluster = image([(1, 2)] * 6, {1: "a", 2: "b", 3: "b"})
    after = layout(cluster, spread(cluster, [1, 2, 3], Random(1)))
    assert loads(after) == {1: 6, 2: 3, 3: 3}


def test_only_the_given_topics_move() -> None:
    cluster = image([(1,)] * 4, plain(1, 2))
    assert spread(cluster, [2], Random(1), topics=["other"]) == {}
    assert len(spread(cluster, [2], Random(1), topics=["t"])) == 4


@pytest.mark.parametrize(
    ("brokers", "code"),
    [([1, 7], ErrorCode.INVALID_REPLICA_ASSIGNMENT), ([1], ErrorCode.INVALID_REPLICATION_FACTOR), ([], None)],
)
def test_the_given_brokers_exist_and_are_enough(brokers: list[int], code: ErrorCode | None) -> None:
    with pytest.raises(KafkaError) as raised:
        spread(image([(1, 2)], plain(1, 2, 3)), brokers, Random(1))
    assert raised.value.code is (code or ErrorCode.INVALID_REPLICATION_FACTOR)


def test_ten_thousand_partitions_are_planned_within_seconds() -> None:
    brokers = [(each, None) for each in range(1, 7)]
    cluster = image(place(brokers, 10_000, 3, Random(1)), plain(1, 2, 3, 4, 5, 6, 7))
    began = perf_counter()
    targets = spread(cluster, [2, 3, 4, 5, 6, 7], Random(1))
    assert perf_counter() - began < 10
    assert set(loads(layout(cluster, targets)).values()) == {5_000}


def assignments(factor: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.permutations(range(1, 8)).map(lambda order: order[:factor]), max_size=20)


@given(st.data())
def test_plans_use_only_the_given_brokers_and_use_them_evenly(data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, 3))
    ids = data.draw(st.lists(st.integers(1, 7), min_size=factor, unique=True))
    cluster = image(data.draw(assignments(factor)), plain(*range(1, 8)))
    after = layout(cluster, spread(cluster, ids, Random(data.draw(st.integers(0, 9)))))
    assert all(len(set(target)) == factor and set(target) <= set(ids) for target in after.values())
    counts = [loads(after)[each] for each in ids]
    assert max(counts) - min(counts) <= 1


@given(assignment=assignments(3), start=st.integers(0, 9))
def test_no_more_replicas_move_than_some_brokers_have_too_many(assignment: list[list[int]], start: int) -> None:
    cluster = image(assignment, plain(*range(1, 8)))
    targets = spread(cluster, range(1, 8), Random(start))
    fair_share = 3 * len(assignment) // 7
    assert moved(cluster, targets) <= sum(max(0, count - fair_share) for count in loads(layout(cluster, {})).values())


# -- another number of replicas


def test_more_replicas_are_added_and_none_is_moved() -> None:
    cluster = image([(1,), (2,), (3,)], plain(1, 2, 3))
    targets = spread(cluster, [1, 2, 3], Random(1), replication_factor=3)
    assert {target[0] for target in targets.values()} == {1, 2, 3}
    assert all(set(target) == {1, 2, 3} for target in targets.values())
    assert moved(cluster, targets) == 6


def test_added_replicas_are_on_other_racks() -> None:
    cluster = image([(1,), (3,)], {1: "a", 2: "a", 3: "b", 4: "b"})
    targets = spread(cluster, [1, 2, 3, 4], Random(1), replication_factor=2)
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert all({racks[each] for each in target} == {"a", "b"} for target in targets.values())


def test_fewer_replicas_copy_nothing_and_keep_the_preferred_leaders() -> None:
    cluster = image(place([(each, None) for each in (1, 2, 3)], 9, 3, Random(1)), plain(1, 2, 3))
    targets = spread(cluster, [1, 2, 3], Random(1), replication_factor=2)
    assert moved(cluster, targets) == 0
    after = layout(cluster, targets)
    assert all(len(target) == 2 for target in after.values())
    assert all(after[key][0] == target[0] for key, target in layout(cluster, {}).items())


def test_replicas_on_other_brokers_are_removed_first() -> None:
    cluster = image([(9, 1, 2), (9, 2, 3), (9, 3, 1)], plain(1, 2, 3))
    for seed in range(20):
        targets = spread(cluster, [1, 2, 3], Random(seed), replication_factor=2)
        assert [targets[TopicPartition("t", number)] for number in range(3)] == [(1, 2), (2, 3), (3, 1)]


def test_more_replicas_than_brokers_are_rejected() -> None:
    with pytest.raises(KafkaError) as caught:
        spread(image([(1,)], plain(1, 2)), [1, 2], Random(1), replication_factor=3)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "t-0 needs 3 brokers for 3 replicas; there are 2" in str(caught.value)


@given(
    factors=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    wanted=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_every_partition_gets_the_wanted_number_of_replicas(factors: list[int], wanted: int, seed: int) -> None:
    rng = Random(seed)
    ids = [1, 2, 3, 4, 5]
    cluster = image([rng.sample(ids, factor) for factor in factors], plain(*ids))
    after = layout(cluster, spread(cluster, [1, 2, 3, 4], Random(seed), replication_factor=wanted))
    assert all(len(set(target)) == wanted == len(target) for target in after.values())
    assert 5 not in loads(after)
    assert max(loads(after).values()) - min(loads(after)[each] for each in (1, 2, 3, 4)) <= 1
