"""Where the replicas of new partitions go."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.cluster.placement import place
from skylog.errors import ErrorCode, KafkaError

Brokers = list[tuple[int, str | None]]
FIVE: Brokers = [(each, None) for each in range(5)]
THREE_RACKS: Brokers = [(each, "abc"[each % 3]) for each in range(9)]


class Fixed(Random):
    """Always starts at the first broker with the shortest distance."""

    def randrange(self, *_: object) -> int:
        return 0


def test_partitions_form_kafkas_stripes() -> None:
    assert place(FIVE, 10, 3, Fixed()) == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],
        [4, 0, 1],
        [0, 2, 3],
        [1, 3, 4],
        [2, 4, 0],
        [3, 0, 1],
        [4, 1, 2],
    ]


def test_racks_form_kafkas_stripes() -> None:
    brokers = [(0, "rack1"), (1, "rack3"), (2, "rack3"), (3, "rack2"), (4, "rack2"), (5, "rack1")]
    assignment = place(brokers, 7, 3, Fixed())
    assert [ids[0] for ids in assignment] == [0, 1, 3, 5, 2, 4, 0]
    assert assignment[0] == [0, 1, 3]
    assert assignment[6] == [0, 2, 4]


def test_leaders_and_followers_are_spread_evenly() -> None:
    assignment = place(FIVE, 60, 3, Random(1))
    assert set(Counter(ids[0] for ids in assignment).values()) == {12}
    assert set(Counter((ids[0], each) for ids in assignment for each in ids[1:]).values()) == {6}


def test_leaders_and_followers_are_spread_evenly_over_racks_of_one_size() -> None:
    assignment = place(THREE_RACKS, 9 * 8, 3, Random(1))
    assert set(Counter(ids[0] for ids in assignment).values()) == {8}
    assert set(Counter(each for ids in assignment for each in ids).values()) == {24}


def test_followers_are_spread_over_racks_of_different_sizes() -> None:
    assignment = place([(1, "a"), (2, "b"), (3, "c"), (4, "a")], 12, 3, Random(1))
    followers = Counter(each for ids in assignment if ids[0] in (2, 3) for each in ids)
    assert followers[1] > 0
    assert followers[4] > 0


def test_many_topics_with_one_partition_are_spread_evenly() -> None:
    rng = Random(7)
    assignments = [place(FIVE, 1, 2, rng)[0] for _ in range(5_000)]
    for counts in Counter(ids[0] for ids in assignments), Counter(ids[1] for ids in assignments):
        assert all(900 < count < 1_100 for count in counts.values())
    assert len({tuple(ids) for ids in assignments}) == 20


def test_racks_are_ignored_unless_every_broker_has_one() -> None:
    assert place([(0, "a"), (1, "a"), (2, None)], 3, 2, Fixed()) == [[0, 1], [1, 2], [2, 0]]


def test_new_partitions_continue_the_stripes_of_a_topic() -> None:
    whole = place(FIVE, 4, 1, Random(3))
    more = place(FIVE, 6, 1, Random(99), first_partition=4, first_broker=whole[0][0])
    assert set(Counter(ids[0] for ids in whole + more).values()) == {2}


def test_new_partitions_are_placed_if_the_first_broker_has_gone() -> None:
    assert len(place(FIVE, 3, 2, Random(1), first_partition=4, first_broker=77)) == 3


@pytest.mark.parametrize(
    ("replication_factor", "message"),
    [
        (0, "the replication factor must be at least 1"),
        (-1, "the replication factor must be at least 1"),
        (6, "a replication factor of 6 needs as many brokers; there are 5"),
    ],
)
def test_the_replication_factor_must_fit_the_brokers(replication_factor: int, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as raised:
        place(FIVE, 1, replication_factor, Random(1))
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_nothing_is_placed_without_brokers() -> None:
    with pytest.raises(KafkaError, match="there are 0"):
        place([], 1, 1, Random(1))


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=9),
    partitions=st.integers(0, 30),
    start=st.integers(0, 99),
    data=st.data(),
)
def test_replicas_are_on_different_brokers_and_on_as_many_racks_as_possible(
    racks: list[str], partitions: int, start: int, data: st.DataObject
) -> None:
    brokers: Brokers = list(enumerate(racks, start=1))
    factor = data.draw(st.integers(1, len(racks)))
    assignment = place(brokers, partitions, factor, Random(start), first_partition=start)
    assert len(assignment) == partitions
    for ids in assignment:
        assert len(set(ids)) == factor
        assert len({racks[each - 1] for each in ids}) == min(factor, len(set(racks)))
    leaders = Counter(ids[0] for ids in assignment)
    assert max(leaders.values(), default=0) - min((leaders[each] for each, _ in brokers), default=0) <= 1
