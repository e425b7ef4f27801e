"""Consumer groups of every client: reading, committing, sharing, static and cooperative members, mixed groups."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.proof import IS_FULL

from .contract import MakeTopic, numbered
from .peers.confluent import ConfluentPeer
from .peers.members import AiokafkaMember, ConfluentMember, DrivenMember, KafkaPythonMember, Member, Wish
from .peers.peer import until

PEERS = ("confluent", "kafka_python", "aiokafka", "kafkajs", "java_3", "java_4", "franz")
COOPERATIVE = ("confluent", "kafka_python", "java_3", "java_4", "franz")
STATIC = ("confluent", "kafka_python", "aiokafka", "java_3", "java_4", "franz")
UNKNOWN_MEMBER_ID = 25


MakeMember = Callable[[str, Wish], Member]


@pytest.fixture
def make_member(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[MakeMember]:
    """A member of the named client; those that a test leaves open are closed after it."""
    made: list[Member] = []
    closed: list[Member] = []

    def make(peer: str, wish: Wish) -> Member:
        in_process: dict[str, Callable[[str, Wish], Member]] = {
            "confluent": ConfluentMember,
            "kafka_python": KafkaPythonMember,
            "aiokafka": AiokafkaMember,
        }
        kind = in_process.get(peer)
        member: Member = kind(bootstrap, wish) if kind else DrivenMember(request.getfixturevalue(peer).driver, wish)
        close = member.close

        def close_once() -> None:
            if member not in closed:
                closed.append(member)
                close()

        member.close = close_once  # type: ignore[method-assign] # a test may close it early
        made.append(member)
        return member

    yield make
    for member in made:
        member.close()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(make_topic: MakeTopic, confluent: ConfluentPeer) -> str:
    """Four partitions with five records each."""
    name = make_topic(partitions=4)
    for partition in range(4):
        confluent.produce(name, partition, numbered(5))
    return name


EVERYTHING = {(partition, offset) for partition in range(4) for offset in range(5)}


def owners(members: list[Member], partitions: int) -> bool:
    """Whether each partition has exactly one owner, and every member some."""
    assigned = [member.look().assignment for member in members]
    return all(assigned) and sorted(each for one in assigned for each in one) == list(range(partitions))


@contextmanager
def alone(make_member: MakeMember, peer: str, wish: Wish) -> Iterator[Member]:
    with closing(make_member(peer, wish)) as member:
        until(lambda: member.look().assignment == {0, 1, 2, 3}, "all partitions assigned")
        yield member


@pytest.mark.parametrize("peer", PEERS)
def test_a_member_reads_everything_and_the_next_goes_on_where_it_committed(
    make_member: MakeMember, topic: str, group: str, peer: str
) -> None:
    with alone(make_member, peer, Wish(group, topic)) as member:
        until(lambda: member.look().read == EVERYTHING, "everything read")
        for partition in range(4):
            member.commit(partition, partition + 1)
    rest = {(partition, offset) for partition, offset in EVERYTHING if offset > partition}
    with alone(make_member, peer, Wish(group, topic)) as member:
        until(lambda: len(member.look().read) >= len(rest), "the rest read")
        assert member.look().read == rest


@pytest.mark.parametrize("peer", PEERS)
def test_a_second_member_takes_its_share_and_leaves_it_behind(
    make_member: MakeMember, topic: str, group: str, peer: str
) -> None:
    with alone(make_member, peer, Wish(group, topic)) as first:
        with closing(make_member(peer, Wish(group, topic))) as second:
            until(lambda: owners([first, second], 4), "two owners with two partitions each")
            assert len(first.look().assignment) == 2
        until(lambda: first.look().assignment == {0, 1, 2, 3}, "all partitions back")


@pytest.mark.parametrize("peer", PEERS)
def test_a_new_group_starts_at_the_end_if_it_wants_to(
    make_member: MakeMember, confluent: ConfluentPeer, topic: str, group: str, peer: str
) -> None:
    with alone(make_member, peer, Wish(group, topic, reset="latest")) as member:

        def reads() -> bool:
            """A position at the end is not seen from outside: what is written once it is taken arrives."""
            confluent.produce(topic, 2, numbered(1))
            return bool(member.look().read)

        until(reads, "a record that was written later")
        assert min(member.look().read) >= (2, 5)


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer != "kafkajs"])  # KafkaJS always resets
def test_a_new_group_fails_where_there_is_no_offset_if_it_wants_to(
    make_member: MakeMember, topic: str, group: str, peer: str
) -> None:
    member = make_member(peer, Wish(group, topic, reset="none"))
    until(lambda: member.look().error is not None, "an error for want of an offset")
    assert member.look().read == set()


@pytest.mark.parametrize("peer", COOPERATIVE)
def test_a_cooperative_member_gives_up_only_what_others_get(
    make_member: MakeMember, topic: str, group: str, peer: str
) -> None:
    wish = Wish(group, topic, assignors=("cooperative-sticky",))
    with alone(make_member, peer, wish) as first:
        second = make_member(peer, wish)
        until(lambda: owners([first, second], 4), "two owners with two partitions each")
        assert first.look().revoked == second.look().assignment


@pytest.mark.parametrize("peer", STATIC)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    make_member: MakeMember, topic: str, group: str, peer: str
) -> None:
    first = make_member(peer, Wish(group, topic, instance="one"))
    second = make_member(peer, Wish(group, topic, instance="two"))
    until(lambda: owners([first, second], 4), "two owners")
    had, rounds = second.look().assignment, first.look().assignments
    second.close()
    again = make_member(peer, Wish(group, topic, instance="two"))
    until(lambda: again.look().assignment == had, "the same partitions")
    assert first.look().assignments == rounds
    assert first.look().assignment == {0, 1, 2, 3} - had


@pytest.mark.parametrize("peer", [peer for peer in COOPERATIVE if peer != "kafka_python"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_the_leader_among_static_members_comes_back_without_a_rebalance(
    make_member: MakeMember, topic: str, group: str, peer: str, assignor: str
) -> None:
    first = make_member(peer, Wish(group, topic, (assignor,), instance="one"))
    until(lambda: first.look().assignment == {0, 1, 2, 3}, "all partitions assigned")
    second = make_member(peer, Wish(group, topic, (assignor,), instance="two"))
    until(lambda: owners([first, second], 4), "two owners")
    had, rounds = first.look().assignment, second.look().assignments
    first.close()
    again = make_member(peer, Wish(group, topic, (assignor,), instance="one"))
    until(lambda: again.look().assignment == had, "the same partitions")
    assert second.look().assignments == rounds


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
@pytest.mark.parametrize("peer", ["kafka_python", "aiokafka", "java_3", "franz"])
def test_every_assignor_shares_the_partitions(
    make_member: MakeMember, topic: str, group: str, peer: str, assignor: str
) -> None:
    members = [make_member(peer, Wish(group, topic, (assignor,))) for _ in range(3)]
    until(lambda: owners(members, 4), "three owners")


def test_clients_of_all_kinds_share_a_group_by_the_assignor_that_all_know(
    make_member: MakeMember, make_topic: MakeTopic, confluent: ConfluentPeer, group: str
) -> None:
    wishes = {
        "confluent": ("roundrobin", "range"),
        "kafka_python": ("range", "roundrobin"),
        "aiokafka": ("range",),  # it offers one at a time
        "kafkajs": ("range",),
        "java_3": ("range", "sticky"),
        "java_4": ("roundrobin", "range"),
    }
    if IS_FULL:
        wishes["franz"] = ("range", "cooperative-sticky")
    count = 2 * len(wishes)
    topic = make_topic(partitions=count)
    for partition in range(count):
        confluent.produce(topic, partition, numbered(2))
    members = [make_member(peer, Wish(group, topic, assignors)) for peer, assignors in wishes.items()]
    until(lambda: owners(members, count), "an owner each")
    assert all(len(member.look().assignment) == 2 for member in members)
    everything = {(partition, offset) for partition in range(count) for offset in range(2)}
    until(lambda: set.union(*(member.look().read for member in members)) == everything, "everything read")
    members[0].close()
    until(lambda: owners(members[1:], count), "one owner fewer")


def test_a_member_without_a_common_assignor_is_refused_and_the_others_do_not_notice(
    make_member: MakeMember, topic: str, group: str
) -> None:
    with alone(make_member, "confluent", Wish(group, topic, ("range",))) as first, ExitStack() as stack:
        rounds = first.look().assignments
        other = stack.enter_context(closing(make_member("confluent", Wish(group, topic, ("roundrobin",)))))
        until(lambda: other.look().error is not None, "an error")
        assert first.look().assignments == rounds
        assert first.look().assignment == {0, 1, 2, 3}


def test_an_offset_cannot_be_set_from_outside_while_the_group_has_members(
    make_member: MakeMember, confluent: ConfluentPeer, topic: str, group: str
) -> None:
    outside = confluent.consumer(**{"group.id": group})
    place = TopicPartition(topic, 0, 3, "by hand")
    try:
        outside.commit(offsets=[place], asynchronous=False)
        with alone(make_member, "confluent", Wish(group, topic)):
            with pytest.raises(KafkaException) as refused:
                outside.commit(offsets=[place], asynchronous=False)
            assert refused.value.args[0].code() == UNKNOWN_MEMBER_ID
        assert outside.committed([place], timeout=20)[0].metadata == "by hand"
    finally:
        outside.close()
