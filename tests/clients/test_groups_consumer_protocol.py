"""Groups of the consumer protocol (KIP-848), with the clients that have it; and groups that change their protocol."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import ConsumerGroupType

from tests.proof import IS_FULL

from .contract import MakeTopic
from .peers.confluent import ConfluentPeer
from .peers.members import Member, Wish
from .peers.peer import until
from .test_groups_members import (
    EVERYTHING,
    MakeMember,
    alone,
    group,
    make_member,
    owners,
    topic,
)

__all__ = ["group", "make_member", "topic"]  # fixtures

PEERS = ("confluent", "java_4", "franz")
MIXED = ("confluent", "java_3", "java_4", "kafka_python", "franz")


def consumer(group: str, topic: str, assignor: str = "uniform", instance: str | None = None) -> Wish:
    return Wish(group, topic, (assignor,), instance=instance, protocol="consumer")


@pytest.mark.parametrize("peer", PEERS)
def test_a_member_reads_everything_and_the_next_goes_on_where_it_committed(
    make_member: MakeMember, topic: str, group: str, peer: str
) -> None:
    with alone(make_member, peer, consumer(group, topic)) as member:
        until(lambda: member.look().read == EVERYTHING, "everything read")
        for partition in range(4):
            member.commit(partition, partition + 1)
    rest = {(partition, offset) for partition, offset in EVERYTHING if offset > partition}
    with alone(make_member, peer, consumer(group, topic)) as member:
        until(lambda: len(member.look().read) >= len(rest), "the rest read")
        assert member.look().read == rest


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("peer", PEERS)
def test_a_second_member_takes_its_share_and_leaves_it_behind(
    make_member: MakeMember, topic: str, group: str, peer: str, assignor: str
) -> None:
    with alone(make_member, peer, consumer(group, topic, assignor)) as first:
        with closing(make_member(peer, consumer(group, topic, assignor))) as second:
            until(lambda: owners([first, second], 4), "two owners with two partitions each")
            assert len(first.look().assignment) == 2
            assert first.look().revoked == second.look().assignment
        until(lambda: first.look().assignment == {0, 1, 2, 3}, "all partitions back")


# franz-go 1.22 leaves without its instance id, which is INVALID_REQUEST: the member stays until its session ends.
@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer != "franz"])
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    make_member: MakeMember, topic: str, group: str, peer: str
) -> None:
    first = make_member(peer, consumer(group, topic, instance="one"))
    second = make_member(peer, consumer(group, topic, instance="two"))
    until(lambda: owners([first, second], 4), "two owners")
    had, others, rounds = second.look().assignment, first.look().assignment, first.look().assignments
    second.close()
    again = make_member(peer, consumer(group, topic, instance="two"))
    until(lambda: again.look().assignment == had, "the same partitions")
    assert first.look().assignment == others
    assert first.look().assignments == rounds


@pytest.mark.parametrize("peer", PEERS)
def test_a_regular_expression_finds_topics_now_and_later(
    make_member: MakeMember, confluent: ConfluentPeer, new_name: str, group: str, peer: str
) -> None:
    names = [f"{new_name}-a", f"{new_name}-b", f"{new_name}-other"]
    confluent.create_topic(names[0], 1, -1, None)
    confluent.create_topic(names[2], 4, -1, None)
    member = make_member(peer, consumer(group, f"^{new_name}-[ab]$"))
    until(lambda: member.look().assignment == {0}, "the topic that matches")
    confluent.create_topic(names[1], 3, -1, None)
    until(lambda: member.look().assignment == {0, 1, 2}, "the topic that was created later")
    member.close()
    confluent.admin.delete_topics(names)


def test_an_invalid_regular_expression_is_refused(make_member: MakeMember, group: str) -> None:
    member = make_member("java_4", consumer(group, "^(unclosed"))  # librdkafka refuses it itself
    until(lambda: member.look().error is not None, "an error")


def test_new_partitions_are_assigned(
    make_member: MakeMember, confluent: ConfluentPeer, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)
    members = [make_member("confluent", consumer(group, topic)) for _ in range(2)]
    until(lambda: owners(members, 2), "two owners")
    confluent.create_partitions(topic, 6)
    until(lambda: owners(members, 6), "the new partitions")
    assert all(len(member.look().assignment) == 3 for member in members)


def test_clients_of_all_kinds_share_a_group(make_member: MakeMember, topic: str, group: str) -> None:
    peers = PEERS if IS_FULL else PEERS[:2]
    members = [make_member(peer, consumer(group, topic)) for peer in peers]
    until(lambda: owners(members, 4), "an owner each")
    until(lambda: set.union(*(each.look().read for each in members)) == EVERYTHING, "everything read")


def kind_of(confluent: ConfluentPeer, group: str) -> ConsumerGroupType:
    """The protocol of a group, as the broker lists it."""
    listed = confluent.admin.list_consumer_groups().result(20).valid
    kind: ConsumerGroupType = next(each.type for each in listed if each.group_id == group)
    return kind


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("peer", MIXED)
def test_a_group_is_upgraded_and_downgraded_member_by_member(
    make_member: MakeMember, confluent: ConfluentPeer, topic: str, group: str, peer: str, assignor: str
) -> None:
    old = Wish(group, topic, (assignor,))
    new = consumer(group, topic)
    new_peer = peer if peer in PEERS else "java_4"

    def replaced(members: list[Member], position: int, kind: str, wish: Wish) -> None:
        members[position].close()
        members[position] = make_member(kind, wish)
        until(lambda: owners(members, 4), f"two owners after member {position} became {wish.protocol}")

    members = [make_member(peer, old) for _ in range(2)]
    until(lambda: owners(members, 4), "two classic owners")
    assert kind_of(confluent, group) is ConsumerGroupType.CLASSIC
    replaced(members, 0, new_peer, new)
    assert kind_of(confluent, group) is ConsumerGroupType.CONSUMER
    replaced(members, 1, new_peer, new)
    replaced(members, 0, peer, old)
    assert kind_of(confluent, group) is ConsumerGroupType.CONSUMER
    replaced(members, 1, peer, old)
    assert kind_of(confluent, group) is ConsumerGroupType.CLASSIC
