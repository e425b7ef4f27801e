"""The assignors: every partition has one subscriber, numbers are equal, and little moves."""

from __future__ import annotations

import itertools
import time
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.groups.consumer import ASSIGNORS
from skylog.groups.consumer.assignor import AssignmentInput, PartitionRacks, Subscriber
from skylog.groups.consumer.partitions import Partitions, common, size
from skylog.groups.consumer.partitions import each as each_of
from tests.proof import proof

TOPICS = [UUID(int=number) for number in range(1, 5)]
many = settings(max_examples=proof(400, 60), deadline=None)


def given_input(
    counts: dict[UUID, int], subscriptions: dict[str, set[UUID]], current: dict[str, Partitions] | None = None
) -> AssignmentInput:
    subscribers = tuple(
        Subscriber(member_id, None, frozenset(topics & counts.keys())) for member_id, topics in subscriptions.items()
    )
    used = set().union(*(each.topics for each in subscribers))
    return AssignmentInput(subscribers, {key: counts[key] for key in counts if key in used}, current or {})


def check(task: AssignmentInput, assigned: dict[str, Partitions]) -> None:
    """Check that each partition goes to exactly one of its subscribers."""
    assert assigned.keys() == {each.member_id for each in task.subscribers}
    topics = {each.member_id: each.topics for each in task.subscribers}
    rows = [
        (topic_id, number)
        for member_id, partitions in assigned.items()
        for topic_id, numbers in partitions.items()
        for number in numbers
        if topic_id in topics[member_id]
    ]
    assert sorted(rows) == sorted((topic_id, n) for topic_id, count in task.counts.items() for n in range(count))


counts_of_topics = st.fixed_dictionaries({topic: st.integers(1, 12) for topic in TOPICS})
members = st.integers(1, 6).map(lambda number: [f"m{each}" for each in range(number)])


@many
@given(counts_of_topics, members, st.data())
@pytest.mark.parametrize("name", ["uniform", "range"])
def test_every_partition_has_one_subscriber(
    name: str, counts: dict[UUID, int], ids: list[str], data: st.DataObject
) -> None:
    subscriptions = {each: data.draw(st.sets(st.sampled_from(TOPICS))) for each in ids}
    task = given_input(counts, subscriptions)
    assigned = ASSIGNORS[name](task)
    check(task, assigned)
    again = task._replace(current=assigned)
    assert ASSIGNORS[name](again) == assigned  # nothing has changed, so nothing moves


@many
@given(counts_of_topics, members, members)
def test_uniform_numbers_differ_by_one_and_nothing_moves_without_need(
    counts: dict[UUID, int], before: list[str], after: list[str]
) -> None:
    topics = set(TOPICS)
    old = ASSIGNORS["uniform"](given_input(counts, dict.fromkeys(before, topics)))
    task = given_input(counts, dict.fromkeys(after, topics), old)
    new = ASSIGNORS["uniform"](task)
    check(task, new)
    sizes = [size(each) for each in new.values()]
    assert max(sizes) - min(sizes) <= 1
    total = sum(counts.values())
    quota, extra = divmod(total, len(after))
    owned = sorted((size(old[each]) for each in after if each in old), reverse=True)
    kept = sum(size(common(old[each], new[each])) for each in after if each in old)
    assert kept == sum(min(count, quota + (position < extra)) for position, count in enumerate(owned))


@many
@given(counts_of_topics, members, st.data())
def test_uniform_is_balanced_where_subscriptions_differ(
    counts: dict[UUID, int], ids: list[str], data: st.DataObject
) -> None:
    subscriptions = {each: data.draw(st.sets(st.sampled_from(TOPICS), min_size=1)) for each in ids}
    assigned = ASSIGNORS["uniform"](given_input(counts, subscriptions))
    for member_id, partitions in assigned.items():
        for other, topics in subscriptions.items():
            if partitions.keys() & topics:  # a partition could move there
                assert size(partitions) - size(assigned[other]) <= 1, (member_id, other)


def test_range_gives_consecutive_partitions_and_the_same_numbers_in_all_topics() -> None:
    one, two = TOPICS[:2]
    assigned = ASSIGNORS["range"](given_input({one: 5, two: 5}, {"a": {one, two}, "b": {one, two}}))
    assert assigned == {
        "a": {one: frozenset({0, 1, 2}), two: frozenset({0, 1, 2})},
        "b": {one: frozenset({3, 4}), two: frozenset({3, 4})},
    }


def test_static_members_keep_their_range_when_their_ids_change() -> None:
    topic = TOPICS[0]

    def assign(ids: dict[str, str]) -> dict[str, Partitions]:
        subscribers = tuple(Subscriber(key, instance, frozenset({topic})) for instance, key in ids.items())
        assigned = ASSIGNORS["range"](AssignmentInput(subscribers, {topic: 4}, {}))
        return {instance: assigned[key] for instance, key in ids.items()}

    assert assign({"one": "a", "two": "b"}) == assign({"one": "y", "two": "x"})


# -- racks

RACKS = ["x", "y", "z"]
racks_of_partitions = st.fixed_dictionaries(
    {topic: st.lists(st.frozensets(st.sampled_from(RACKS)), min_size=1, max_size=8).map(tuple) for topic in TOPICS}
)


def with_racks(
    racks: PartitionRacks, subscriptions: dict[str, set[UUID]], homes: dict[str, str | None]
) -> AssignmentInput:
    task = given_input({topic: len(found) for topic, found in racks.items()}, subscriptions)
    subscribers = tuple(each._replace(rack=homes[each.member_id]) for each in task.subscribers)
    return task._replace(subscribers=subscribers, racks={topic: racks[topic] for topic in task.counts})


def matches(task: AssignmentInput, assigned: dict[str, Partitions]) -> int:
    homes = {each.member_id: each.rack for each in task.subscribers}
    return sum(
        homes[member_id] in task.racks[topic_id][number]
        for member_id, partitions in assigned.items()
        for topic_id, found in partitions.items()
        for number in found
    )


@many
@given(racks_of_partitions, members, st.data())
@pytest.mark.parametrize("name", ["uniform", "range"])
def test_racks_cost_no_balance_and_nothing_moves_twice(
    name: str, racks: PartitionRacks, ids: list[str], data: st.DataObject
) -> None:
    subscriptions = {each: data.draw(st.sets(st.sampled_from(TOPICS))) for each in ids}
    homes = {each: data.draw(st.sampled_from([*RACKS, None])) for each in ids}
    task = with_racks(racks, subscriptions, homes)
    blind = ASSIGNORS[name](task._replace(racks={}))
    assigned = ASSIGNORS[name](task)
    check(task, assigned)
    assert {each: size(blind[each]) for each in ids} == {each: size(assigned[each]) for each in ids}
    assert matches(task, assigned) >= matches(task, blind)
    assert ASSIGNORS[name](task._replace(current=assigned)) == assigned


@many
@given(racks_of_partitions, members, st.data())
def test_uniform_leaves_no_exchange_that_would_help(racks: PartitionRacks, ids: list[str], data: st.DataObject) -> None:
    subscriptions = {each: data.draw(st.sets(st.sampled_from(TOPICS), min_size=1)) for each in ids}
    homes = {each: data.draw(st.sampled_from([*RACKS, None])) for each in ids}
    task = with_racks(racks, subscriptions, homes)
    assigned = ASSIGNORS["uniform"](task)
    owners = [(member_id, each) for member_id, partitions in assigned.items() for each in each_of(partitions)]
    for (one, mine), (other, theirs) in itertools.combinations(owners, 2):
        if theirs[0] in subscriptions[one] and mine[0] in subscriptions[other]:
            here, there = racks[mine[0]][mine[1]], racks[theirs[0]][theirs[1]]
            now = (homes[one] in here) + (homes[other] in there)
            assert (homes[one] in there) + (homes[other] in here) <= now


def test_range_gives_the_same_numbers_in_all_topics_with_racks_too() -> None:
    one, two = TOPICS[:2]
    x, y, both = frozenset("x"), frozenset("y"), frozenset("xy")
    racks = {one: (y, x, both, x), two: (y, both, y, x)}
    assigned = ASSIGNORS["range"](with_racks(racks, {"a": {one, two}, "b": {one, two}}, {"a": "x", "b": "y"}))
    assert assigned == {
        "a": {one: frozenset({1, 3}), two: frozenset({1, 3})},
        "b": {one: frozenset({0, 2}), two: frozenset({0, 2})},
    }


def test_a_large_group_with_racks_is_assigned_in_time() -> None:
    """Kafka has taken rack awareness out of its assignors because they were slow (KAFKA-16694)."""
    topics = [UUID(int=number) for number in range(1, 101)]
    sets = [frozenset(each) for each in itertools.combinations([f"r{number}" for number in range(6)], 2)]
    racks = {topic: tuple(sets[(at + number) % len(sets)] for number in range(20)) for at, topic in enumerate(topics)}
    ids = [f"m{number}" for number in range(200)]
    task = with_racks(racks, {each: set(topics) for each in ids}, {each: f"r{at % 6}" for at, each in enumerate(ids)})
    started = time.process_time()
    assigned = ASSIGNORS["uniform"](task)
    assert time.process_time() - started < 2
    assert matches(task, assigned) == 2000
