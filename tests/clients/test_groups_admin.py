"""Groups through every client's admin: listed, described, their offsets read, deleted."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from .contract import MakeTopic
from .peers.aiokafka_peer import AiokafkaPeer
from .peers.confluent import ConfluentPeer
from .peers.group_admins import AiokafkaGroups, ConfluentGroups, Description, DrivenGroups, KafkaPythonGroups
from .peers.kafka_python import KafkaPythonPeer
from .peers.members import ConfluentMember, Wish
from .peers.peer import Refused, until

PEERS = ("confluent", "kafka_python", "aiokafka", "kafkajs", "java_3", "java_4")
DELETING = tuple(peer for peer in PEERS if peer != "aiokafka")
DELETING_OFFSETS = ("kafka_python", "java_3", "java_4")
NOTE = "grüße, at 7"
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
GROUP_SUBSCRIBED_TO_TOPIC = 86

Admin = Callable[[str], Any]


@pytest.fixture
def admin_of(request: pytest.FixtureRequest, bootstrap: str, confluent: ConfluentPeer) -> Iterator[Admin]:
    opened: list[Any] = []

    def make(peer: str) -> Any:
        if peer == "confluent":
            return ConfluentGroups(confluent)
        if peer == "kafka_python":
            opened.append(KafkaPythonPeer(bootstrap))
            return KafkaPythonGroups(opened[-1])
        if peer == "aiokafka":
            opened.append(AiokafkaPeer(bootstrap))
            return AiokafkaGroups(opened[-1])
        return DrivenGroups(request.getfixturevalue(peer).driver)

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic(partitions=3)


@pytest.fixture
def committed(bootstrap: str, topic: str, group: str) -> str:
    """A group without members that has committed 7 in partition 0, with a note, and 9 in partition 2.

    By kafka-python: confluent-kafka sends a zero byte behind each note.
    """
    offsets = {
        TopicPartition(topic, 0): OffsetAndMetadata(7, NOTE, -1),
        TopicPartition(topic, 2): OffsetAndMetadata(9, "", -1),
    }
    with closing(KafkaPythonPeer(bootstrap)) as peer:
        outcome = peer.admin.alter_group_offsets(group, offsets)
    assert all(error.errno == 0 for error in outcome.values())
    return group


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer != "confluent"])
def test_committed_offsets_and_their_notes_come_back_as_sent(
    admin_of: Admin, committed: str, topic: str, peer: str
) -> None:
    assert admin_of(peer).offsets(committed, topic) == {0: (7, NOTE), 2: (9, "")}


def test_confluent_kafka_gets_back_the_notes_that_it_sent(
    admin_of: Admin, confluent: ConfluentPeer, topic: str
) -> None:
    """It reads a note up to a zero byte, which only its own have at their end."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    with closing(confluent.consumer(**{"group.id": group})) as consumer:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 1, 7, NOTE)], asynchronous=False)
    assert admin_of("confluent").offsets(group, topic) == {1: (7, NOTE)}


@pytest.mark.parametrize("peer", PEERS)
def test_a_group_without_members_is_listed_and_described_as_empty(admin_of: Admin, committed: str, peer: str) -> None:
    admin = admin_of(peer)
    assert committed in admin.groups()
    assert admin.describe(committed) == Description("Empty", "", 0)


@pytest.mark.parametrize("peer", PEERS)
def test_a_group_at_work_is_described_with_its_assignor_and_members(
    admin_of: Admin, bootstrap: str, topic: str, group: str, peer: str
) -> None:
    admin = admin_of(peer)
    with closing(ConfluentMember(bootstrap, Wish(group, topic))) as member:
        until(lambda: len(member.look().assignment) == 3, "all partitions assigned")
        assert group in admin.groups()
        assert admin.describe(group) == Description("Stable", "range", 1)


@pytest.mark.parametrize("peer", DELETING)
def test_a_deleted_group_is_gone_with_its_offsets(admin_of: Admin, committed: str, topic: str, peer: str) -> None:
    admin = admin_of(peer)
    admin.delete(committed)
    assert committed not in admin.groups()
    assert admin.offsets(committed, topic) == {}
    with pytest.raises(Refused) as refused:
        admin.delete(committed)
    assert refused.value.code == GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("peer", DELETING)
def test_a_group_with_members_cannot_be_deleted(
    admin_of: Admin, bootstrap: str, topic: str, group: str, peer: str
) -> None:
    with closing(ConfluentMember(bootstrap, Wish(group, topic))) as member:
        until(lambda: len(member.look().assignment) == 3, "all partitions assigned")
        with pytest.raises(Refused) as refused:
            admin_of(peer).delete(group)
        assert refused.value.code == NON_EMPTY_GROUP


@pytest.mark.parametrize("peer", DELETING_OFFSETS)
def test_one_offset_is_deleted_and_the_others_stay(admin_of: Admin, committed: str, topic: str, peer: str) -> None:
    admin = admin_of(peer)
    admin.delete_offset(committed, topic, 0)
    assert admin.offsets(committed, topic) == {2: (9, "")}


@pytest.mark.parametrize("peer", DELETING_OFFSETS)
def test_an_offset_of_a_topic_that_members_read_cannot_be_deleted(
    admin_of: Admin, bootstrap: str, committed: str, topic: str, peer: str
) -> None:
    with closing(ConfluentMember(bootstrap, Wish(committed, topic))) as member:
        until(lambda: len(member.look().assignment) == 3, "all partitions assigned")
        with pytest.raises(Refused) as refused:
            admin_of(peer).delete_offset(committed, topic, 0)
        assert refused.value.code == GROUP_SUBSCRIBED_TO_TOPIC


def test_the_offsets_of_a_deleted_topic_are_forgotten(
    admin_of: Admin, confluent: ConfluentPeer, committed: str, topic: str
) -> None:
    confluent.delete_topic(topic)
    until(lambda: admin_of("confluent").offsets(committed, topic) == {}, "no offsets of the deleted topic")
