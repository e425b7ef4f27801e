"""ConsumerGroups against a real broker."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from skylog.client import (
    Admin,
    BrokerUnreachableError,
    Connection,
    ConsumerGroup,
    ConsumerGroups,
    GroupActiveError,
    GroupMember,
    GroupNotFoundError,
    GroupPartition,
    OffsetMove,
    OffsetRange,
    ResetTo,
    group_requests,
)
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
from skylog.protocol.find_coordinator import Coordinator
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.raw import RawClient
from tests.cli.conftest import running_broker, until

_numbers = itertools.count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("groups")
    with running_broker(directory / "data") as address:
        yield address


@pytest.fixture
def groups(bootstrap: str) -> ConsumerGroups:
    return ConsumerGroups(Connection(bootstrap))


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of two partitions with three messages each."""
    name = f"topic{next(_numbers)}"
    Admin(Connection(bootstrap)).create_topic(name, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in (0, 1) * 3:
        producer.produce(name, b"x", partition=partition)
    assert producer.flush(20) == 0
    return name


def reset(groups: ConsumerGroups, name: str, topic: str, offset: int) -> None:
    groups.reset(groups.plan_reset(name, ResetTo.OFFSET, offset, {topic: None}))


def test_a_group_made_by_a_reset_is_listed_and_described(groups: ConsumerGroups, topic: str) -> None:
    name = f"of-{topic}"
    reset(groups, name, topic, 1)
    partitions = tuple(GroupPartition(TopicPartition(topic, number), 1, OffsetRange(0, 3), None) for number in (0, 1))
    expected = ConsumerGroup(name, "Empty", None, (), partitions)
    assert groups.describe_groups([name]) == [expected]
    assert expected in groups.list_groups()
    assert expected.lag == 4


def test_a_plan_changes_nothing(groups: ConsumerGroups, topic: str) -> None:
    plan = groups.plan_reset(f"of-{topic}", ResetTo.LATEST, wanted={topic: [1]})
    assert plan.moves == (OffsetMove(TopicPartition(topic, 1), None, 3, OffsetRange(0, 3)),)
    assert not plan.group.exists
    with pytest.raises(GroupNotFoundError):
        groups.describe_groups([plan.group.name])


def test_a_member_that_joins_prevents_what_was_planned_and_every_deletion(
    groups: ConsumerGroups, bootstrap: str, topic: str
) -> None:
    name = f"of-{topic}"
    plan = groups.plan_reset(name, ResetTo.LATEST, wanted={topic: None})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "client.id": "late"})
    consumer.subscribe([topic])
    try:
        until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))
        with pytest.raises(GroupActiveError, match=f"group '{name}' has active members: late at 127.0.0.1"):
            groups.reset(plan)
        reset(groups, f"{name}-too", topic, 0)
        with pytest.raises(GroupActiveError):
            groups.delete_groups([f"{name}-too", name])
        assert groups.describe_groups([f"{name}-too"])
    finally:
        consumer.close()
    assert all(each.committed_offset is None for each in groups.describe_groups([name])[0].partitions)


def test_offsets_of_a_deleted_topic_are_no_obstacle(groups: ConsumerGroups, bootstrap: str, topic: str) -> None:
    name = f"of-{topic}"
    reset(groups, name, topic, 1)
    Admin(Connection(bootstrap)).delete_topics([topic])
    until(lambda: groups.describe_groups([name])[0].lag == 0)
    with pytest.raises(SkylogError, match="reads nothing yet; name the topics"):
        groups.plan_reset(name, ResetTo.EARLIEST)


def test_a_group_that_is_not_there_names_the_nearest(groups: ConsumerGroups, topic: str) -> None:
    reset(groups, "audit-writers", topic, 0)
    with pytest.raises(GroupNotFoundError) as caught:
        groups.delete_groups(["audit-writer"])
    assert caught.value.nearest == ("audit-writers",)
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_needs_a_name(groups: ConsumerGroups, topic: str) -> None:
    with pytest.raises(KafkaError, match="needs a name"):
        groups.plan_reset("", ResetTo.LATEST, wanted={topic: None})


def test_a_deleted_group_has_forgotten_its_offsets(groups: ConsumerGroups, topic: str) -> None:
    name = f"of-{topic}"
    reset(groups, name, topic, 2)
    groups.delete_groups([name])
    assert name not in {group.name for group in groups.list_groups()}
    assert groups.plan_reset(name, ResetTo.LATEST, wanted={topic: [0]}).moves[0].from_offset is None


def test_groups_that_are_being_loaded_are_waited_for(tmp_path: Path) -> None:
    names = [f"g{number:02}" for number in range(30)]
    with running_broker(tmp_path / "data") as address:
        Admin(Connection(address)).create_topic("t", 200)  # enough to be still loading when the request arrives
        groups = ConsumerGroups(Connection(address))
        for name in names:
            reset(groups, name, "t", 0)
    with running_broker(tmp_path / "data") as address:
        assert [group.name for group in ConsumerGroups(Connection(address)).list_groups()] == names
    with running_broker(tmp_path / "data") as address:
        described = ConsumerGroups(Connection(address)).describe_groups(names)
    assert [len(group.partitions) for group in described] == [200] * len(names)


@pytest.mark.parametrize(
    ("committed", "offsets", "lag"),
    [
        (12, OffsetRange(10, 15), 3),
        (None, OffsetRange(10, 15), 5),
        (7, OffsetRange(10, 15), 5),
        (15, OffsetRange(10, 15), 0),
        (20, OffsetRange(10, 15), 0),
        (12, None, None),
    ],
)
def test_the_lag_is_what_the_log_still_has(committed: int | None, offsets: OffsetRange | None, lag: int | None) -> None:
    assert GroupPartition(TopicPartition("t", 0), committed, offsets, None).lag == lag


def test_a_group_with_an_unreachable_coordinator_is_not_listed_and_describing_it_fails(
    groups: ConsumerGroups, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, lost = f"sound-{topic}", f"lost-{topic}"
    for name in (sound, lost):
        reset(groups, name, topic, 1)
    find = group_requests.find_coordinators

    async def find_all_but_one(brokers: Any, names: Any, *limits: Any) -> list[Coordinator]:
        """Let the coordinator of one group be at an address without a broker: a single broker cannot be half down."""
        found = await find(brokers, names, *limits)
        return [dataclasses.replace(row, port=1) if row.key == lost else row for row in found]

    monkeypatch.setattr(group_requests, "find_coordinators", find_all_but_one)
    listed = {group.name for group in groups.list_groups()}
    assert sound in listed
    assert lost not in listed
    with pytest.raises(BrokerUnreachableError):
        ConsumerGroups(Connection(groups._connection.bootstrap, timeout_s=1)).describe_groups([lost])


@pytest.mark.parametrize("assignment", [b"x", b"\0\1\x7f\xff\xff\xff", b"\xff\xff", bytes(900_000)], ids=len)
def test_an_assignment_that_cannot_be_parsed_ends_nobody(
    groups: ConsumerGroups, bootstrap: str, topic: str, assignment: bytes
) -> None:
    """librdkafka aborts the process, and with it the console and the command line."""
    name = f"odd-{topic}-{len(assignment)}"
    with RawClient(int(bootstrap.rpartition(":")[2])) as client:
        join = JoinGroupRequest(
            group_id=name,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = client.ask(join, 3)
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
        sync = SyncGroupRequest(
            group_id=name, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[mine]
        )
        assert client.ask(sync, 3).error_code == 0
        [group] = groups.describe_groups([name])
        assert name in {each.name for each in groups.list_groups()}
    assert (group.state, group.protocol) == ("Stable", "range")
    assert [member.partitions for member in group.members] == [()]


def test_of_many_active_members_some_are_named() -> None:
    members = tuple(GroupMember(f"id-{number}", f"c{number}", "h", None, ()) for number in range(8))
    message = str(GroupActiveError(ConsumerGroup("g", "Stable", "range", members, ())))
    assert "c0 at h, c1 at h, c2 at h, c3 at h, c4 at h, 3 more; stop them" in message


def test_without_a_broker_listing_fails_fast() -> None:
    with pytest.raises(BrokerUnreachableError):
        ConsumerGroups(Connection("127.0.0.1:1")).list_groups()
