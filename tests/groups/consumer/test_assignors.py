"""The assignors: every partition has one subscriber, numbers are equal, and little moves."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.groups.consumer import ASSIGNORS
from skylog.groups.consumer.assignor import AssignmentInput, Subscriber
from skylog.groups.consumer.partitions import Partitions, common, size
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
