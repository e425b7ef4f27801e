"""Subscriptions and assignments of the classic protocol, against kafka-python's codec of the same."""

from __future__ import annotations

from uuid import UUID

import pytest
from kafka.protocol.consumer import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from skylog.groups.consumer.embedded_protocol import read_assignment, read_subscription, write_assignment

from .driver import FakePartition, FakeTopic

T = UUID(int=1)
TOPICS = {"t": FakeTopic(T, (FakePartition(),) * 4)}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_subscription_of_each_version_is_read(version: int) -> None:
    owned = ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[1, 2])
    theirs = ConsumerProtocolSubscription(
        version=version, topics=["t", "u"], user_data=b"x", owned_partitions=[owned], generation_id=3, rack_id="r"
    )
    found = read_subscription(bytes(theirs.encode()))
    assert found is not None
    assert (found.version, found.topics) == (version, frozenset({"t", "u"}))
    assert found.owned == ({"t": frozenset({1, 2})} if version >= 1 else {})
    assert found.rack_id == ("r" if version >= 3 else None)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\0\0\5x", b"\xff\xff\0\0\0\0"])
def test_other_data_is_no_subscription(data: bytes) -> None:
    assert read_subscription(data) is None


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_assignment_is_written_and_read(version: int) -> None:
    data = write_assignment({T: frozenset({3, 0}), UUID(int=9): frozenset({1})}, {T: "t"}, version)
    theirs = ConsumerProtocolAssignment.decode(data)
    assert [(each.topic, each.partitions) for each in theirs.assigned_partitions] == [("t", [0, 3])]
    assert read_assignment(data, TOPICS) == {T: frozenset({0, 3})}


def test_a_member_without_an_assignment_has_no_partitions() -> None:
    assert read_assignment(b"", TOPICS) == {}
    assert read_assignment(b"\0\0\1", TOPICS) is None
    assert read_assignment(write_assignment({T: frozenset({0})}, {T: "gone"}, 0), TOPICS) == {}
