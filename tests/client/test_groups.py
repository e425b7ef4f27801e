"""ConsumerGroups against a real broker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as LibraryError

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
)
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition
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
    fetch = groups._fetch_commits

    def fetch_all_but_one(names: Sequence[str]) -> dict[str, Future[Any]]:
        """Simulate the library's answer for an unreachable coordinator: a single broker cannot be half down."""
        fetched = fetch(names)
        if lost in fetched:
            fetched[lost] = Future()
            fetched[lost].set_exception(KafkaException(LibraryError(LibraryError._TIMED_OUT)))
        return fetched

    monkeypatch.setattr(groups, "_fetch_commits", fetch_all_but_one)
    listed = {group.name for group in groups.list_groups()}
    assert sound in listed
    assert lost not in listed
    with pytest.raises(BrokerUnreachableError):
        groups.describe_groups([lost])


def test_of_many_active_members_some_are_named() -> None:
    members = tuple(GroupMember(f"id-{number}", f"c{number}", "h", None, ()) for number in range(8))
    message = str(GroupActiveError(ConsumerGroup("g", "Stable", "range", members, ())))
    assert "c0 at h, c1 at h, c2 at h, c3 at h, c4 at h, 3 more; stop them" in message


def test_without_a_broker_listing_fails_fast() -> None:
    with pytest.raises(BrokerUnreachableError):
        ConsumerGroups(Connection("127.0.0.1:1")).list_groups()
