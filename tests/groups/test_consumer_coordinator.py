"""Groups of the consumer protocol through the broker's API: heartbeats, offsets, descriptions, restarts."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skylog.broker import Broker, consumer_groups
from skylog.broker.group_log import GroupLog
from skylog.errors import ErrorCode, KafkaError
from skylog.groups.consumer import ASSIGNORS, patterns
from skylog.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from skylog.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, OwnedTopicPartitions
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from skylog.protocol.list_groups import ListGroupsRequest
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from skylog.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.conftest import create_topic
from tests.broker.leaders import OURS, THEIRS, elect, index_of
from tests.broker.process import BrokerProcess, BrokerThread, until
from tests.broker.test_flush import Disk

from .client import GroupClient
from .driver import subscription

SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "700",
    "group.consumer.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "4",
}
PARTITIONS = 6


class Consumer:
    """A member of the group `g` that keeps what the responses say."""

    def __init__(self, client: GroupClient, name: str = "", *, topics: tuple[str, ...] | None = ("t",), **first: Any):
        self._client = client
        self.member_id = name or str(uuid.uuid4())
        self.epoch = 0
        self._says_all = True
        self.owned: dict[uuid.UUID, list[int]] = {}
        self._first = {"subscribed_topic_names": None if topics is None else list(topics), **first}

    def send(self, **fields: Any) -> Any:
        request = {"group_id": "g", "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        return self._client.ask(ConsumerGroupHeartbeatRequest(**request), 1)

    def beat(self) -> int:
        """Send a heartbeat with all that it owns, a full one at first and after an error. Return the error code."""
        self.begin()
        return self.end()

    def begin(self) -> None:
        """Send the heartbeat of `beat`."""
        rows = [OwnedTopicPartitions(topic_id=key, partitions=numbers) for key, numbers in self.owned.items()]
        first = {"rebalance_timeout_ms": 60_000, **self._first} if self._says_all else {}
        request = {"group_id": "g", "member_id": self.member_id, "member_epoch": self.epoch, **first}
        self._client.send(ConsumerGroupHeartbeatRequest(**request, topic_partitions=rows), 1)

    def end(self) -> int:
        """Wait for the answer to what `begin` has sent. Return the error code."""
        answer = self._client.receive()
        self._says_all = answer.error_code != 0
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}
        code: int = answer.error_code
        return code

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))


def settle(*members: Consumer) -> None:
    for _ in range(4):
        for member in members:
            assert member.beat() == 0


def connect(broker: BrokerProcess | BrokerThread) -> GroupClient:
    client = GroupClient(broker.port)
    if "t" not in {topic.name for topic in client.metadata().topics}:
        create_topic(client, "t", PARTITIONS)
    client.find()
    return client


def commit(client: GroupClient, member: Consumer, offset: int, epoch: int | None = None, version: int = 9) -> int:
    begin_commit(client, member, offset, epoch, version)
    code: int = client.receive().topics[0].partitions[0].error_code
    return code


def begin_commit(
    client: GroupClient, member: Consumer, offset: int, epoch: int | None = None, version: int = 9
) -> None:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=member.epoch if epoch is None else epoch,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    client.send(request, version)


def members(thread: BrokerThread) -> list[str]:
    """The members of the group, without a tick."""

    def look(broker: Broker) -> list[str]:
        (group,) = broker.coordinator.shard("g").all_groups()
        return list(group.members)

    return thread.look(look)


class Work:
    """Work in the thread: it is counted, and waits at a gate."""

    def __init__(self, does: Callable[..., Any]) -> None:
        self._does = does
        self.gate = threading.Event()
        self.gate.set()
        self.began = 0

    def __call__(self, *arguments: Any) -> Any:
        self.began += 1
        assert self.gate.wait(20)
        return self._does(*arguments)


@pytest.fixture
def assigning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """All assignments, which are computed in the thread."""
    work = Work(ASSIGNORS["uniform"])
    monkeypatch.setitem(ASSIGNORS, "uniform", work)
    monkeypatch.setattr(consumer_groups, "LARGE_ASSIGNMENT", 0)
    yield work
    work.gate.set()


@pytest.fixture
def matching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """All matches of patterns."""
    work = Work(patterns.match)
    monkeypatch.setattr(patterns, "match", work)
    yield work
    work.gate.set()


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.gate.set()


def describe(client: GroupClient, version: int = 1) -> Any:
    (found,) = client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), version).groups
    return found


@pytest.fixture(params=["", "1"], ids=["page-cache", "fsync"])
def thread(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerThread]:
    """With and without an fsync for each record: two paths through the coordinator."""
    settings = {"log.flush.interval.messages": request.param} if request.param else {}
    with BrokerThread(tmp_path / "data", {**SETTINGS, **settings}) as broker:
        yield broker


def test_members_share_the_partitions_and_hand_them_over(thread: BrokerThread) -> None:
    with connect(thread) as client:
        a, b = Consumer(client), Consumer(client)
        answer = a.send(rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[])
        assert (answer.error_code, answer.member_id, answer.heartbeat_interval_ms) == (0, a.member_id, 700)
        settle(a)
        assert a.count == PARTITIONS
        settle(a, b)
        assert (a.count, b.count) == (3, 3)
        assert b.send(member_epoch=-1).member_epoch == -1
        settle(a)
        assert a.count == PARTITIONS


def test_version_0_gets_its_member_id_from_the_broker(thread: BrokerThread) -> None:
    with connect(thread) as client:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = client.ask(request, 0)
        assert answer.error_code == 0
        assert uuid.UUID(answer.member_id)


def test_errors_have_kafkas_codes(thread: BrokerThread) -> None:
    with connect(thread) as client:
        a = Consumer(client)
        assert a.send(member_epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert a.send(member_epoch=-1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert a.send(group_id="").error_code == ErrorCode.INVALID_REQUEST
        invalid = a.send(member_epoch=0)
        assert (invalid.error_code, invalid.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        assert Consumer(client, server_assignor="sticky").beat() == ErrorCode.UNSUPPORTED_ASSIGNOR
        assert Consumer(client, topics=None, subscribed_topic_regex="(").beat() == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert client.groups() == set()  # none of them has left a group behind
        settle(a)
        assert a.send(member_epoch=a.epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        static = Consumer(client, instance_id="one")
        settle(static)
        assert Consumer(client, instance_id="one").beat() == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_heartbeat_that_names_too_much_is_refused(thread: BrokerThread) -> None:
    with connect(thread) as client:
        names = tuple(f"{number:0250}" for number in range(1100))
        assert Consumer(client, topics=names).beat() == ErrorCode.INVALID_REQUEST
        owned = [OwnedTopicPartitions(topic_id=uuid.uuid4(), partitions=list(range(1000))) for _ in range(260)]
        assert Consumer(client).send(member_epoch=1, topic_partitions=owned).error_code == ErrorCode.INVALID_REQUEST
        assert client.groups() == set()


def test_a_full_group_refuses_new_members(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", {"group.consumer.max.size": "1"}) as thread, connect(thread) as client:
        settle(Consumer(client))
        assert Consumer(client).beat() == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_new_partitions_and_topics_reach_the_members(thread: BrokerThread) -> None:
    with connect(thread) as client:
        a = Consumer(client, topics=None, subscribed_topic_regex="t.*")
        settle(a)
        assert a.count == PARTITIONS
        wanted = CreatePartitionsTopic(name="t", count=10, assignments=None)
        client.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False), 3)
        settle(a)
        assert a.count == 10
        create_topic(client, "t2", 2)
        settle(a)
        assert a.count == 12


def test_offsets_are_committed_and_fetched_with_the_current_epoch_only(thread: BrokerThread) -> None:
    with connect(thread) as client:
        a = Consumer(client)
        settle(a)
        assert commit(client, a, 5) == 0
        assert commit(client, a, 6, epoch=a.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert commit(client, a, 6, version=8) == ErrorCode.UNSUPPORTED_VERSION
        assert commit(client, Consumer(client), 6, epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID

        def fetch(member_id: str | None, epoch: int) -> int:
            group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=None)
            (answer,) = client.ask(OffsetFetchRequest(groups=[group]), 9).groups
            code: int = answer.error_code
            return code

        assert fetch(a.member_id, a.epoch) == 0
        assert fetch(None, -1) == 0
        assert fetch(a.member_id, a.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert fetch("x", a.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert client.committed() == {("t", 0): (5, "")}


def test_groups_are_listed_described_and_deleted_by_their_type(thread: BrokerThread) -> None:
    with connect(thread) as client:
        a = Consumer(client, rack_id="r1", server_assignor="range", instance_id="one")
        settle(a)
        assert commit(client, a, 5) == 0
        client.commit(1, group="other")

        def listed(**filters: Any) -> list[tuple[str, str, str]]:
            groups = client.ask(ListGroupsRequest(**filters), 5).groups
            return sorted((each.group_id, each.group_type, each.group_state) for each in groups)

        assert listed() == [("g", "consumer", "Stable"), ("other", "classic", "Empty")]
        assert listed(types_filter=["Consumer"], states_filter=["stable"]) == [("g", "consumer", "Stable")]
        found = describe(client)
        assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "range")
        assert (found.group_epoch, found.assignment_epoch) == (1, 1)
        (member,) = found.members
        assert (member.member_id, member.instance_id, member.rack_id) == (a.member_id, "one", "r1")
        assert (member.member_epoch, member.member_type, member.subscribed_topic_names) == (1, 1, ["t"])
        for shown in (member.assignment, member.target_assignment):
            assert [(each.topic_name, list(each.partitions)) for each in shown.topic_partitions] == [
                ("t", list(range(PARTITIONS)))
            ]
        (classic,) = client.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
        assert (classic.error_code, classic.group_state) == (0, "Dead")
        (classic,) = client.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
        assert (classic.error_code, classic.error_message) == (69, "Group g is not a classic group.")
        row = OffsetDeleteRequestPartition(partition_index=0)
        deletion = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=[row])])
        busy = client.ask(deletion, 0).topics[0].partitions[0].error_code
        assert busy == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert client.delete() == ErrorCode.NON_EMPTY_GROUP
        a.send(member_epoch=-1)
        assert client.ask(deletion, 0).topics[0].partitions[0].error_code == 0
        assert client.delete() == 0
        assert describe(client).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert describe(client, version=0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_expired_member_is_removed_without_a_request(tmp_path: Path) -> None:
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": "300"}
    with BrokerThread(tmp_path / "data", settings) as thread, connect(thread) as client:
        settle(Consumer(client))
        until(lambda: describe(client).group_state == "Empty", "the member to expire")


def test_members_offsets_and_epochs_survive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS) as process:
        with connect(process) as client:
            a = Consumer(client)
            b = Consumer(client, topics=None, subscribed_topic_regex="t|never")
            settle(a, b)
            assert commit(client, a, 7) == 0
            before = describe(client)
        process.kill()
        process.start()
        with connect(process) as client:
            until(lambda: describe(client).error_code == 0, "the group to be loaded")
            assert describe(client) == before
            a._client = b._client = client
            settle(a, b)
            assert (a.count, b.count) == (3, 3)
            assert commit(client, a, 8) == 0
            for member in (a, b):
                member.send(member_epoch=-1)
            assert client.delete() == 0
        process.kill()
        process.start()
        with connect(process) as client:
            assert client.groups() == set()
        assert not process.tracebacks()


def test_a_group_moves_with_the_leadership_of_its_partition(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", SETTINGS) as thread, connect(thread) as client:
        a = Consumer(client)
        settle(a)

        def move(leader: int) -> None:
            thread.run(elect(thread.broker, leader, index_of(thread.broker, "g")))

        move(THEIRS)
        assert a.beat() == ErrorCode.NOT_COORDINATOR
        move(OURS)
        until(lambda: a.beat() == 0, "the group to be loaded")
        assert (a.epoch, a.count) == (1, PARTITIONS)


def test_no_response_comes_before_the_change_is_stored(tmp_path: Path, disk: Disk) -> None:
    settings = {**SETTINGS, "log.flush.interval.messages": "1"}
    with BrokerThread(tmp_path / "data", settings, disk.open_file) as thread, connect(thread) as client:
        a = Consumer(client)
        began = disk.began
        disk.gate.clear()
        fields: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
        join = ConsumerGroupHeartbeatRequest(group_id="g", member_id=a.member_id, member_epoch=0, **fields)
        client.send(join, 1)
        until(lambda: disk.began > began, "the fsync to begin")
        assert not client.has_answer(0.1)
        with GroupClient(thread.port) as again:  # the same request on another connection has nothing to store
            again.send(join, 1)
            assert not again.has_answer(0.1)
            disk.gate.set()
            assert client.receive().member_epoch == again.receive().member_epoch == 1


def test_a_change_that_could_not_be_stored_is_stored_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    data_dir = tmp_path / "data"
    with BrokerThread(data_dir, SETTINGS) as thread, connect(thread) as client:
        a, b = Consumer(client), Consumer(client)
        settle(a)
        with monkeypatch.context() as patch:
            patch.setattr(GroupLog, "append", fail)
            assert b.beat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert a.beat() == ErrorCode.COORDINATOR_NOT_AVAILABLE  # it would tell of the new target
        assert (a.epoch, b.epoch) == (1, 0)
        settle(a, b)
        assert (a.count, b.count) == (3, 3)
        before = describe(client)
    with BrokerThread(data_dir, SETTINGS) as thread, connect(thread) as client:
        until(lambda: describe(client).error_code == 0, "the group to be loaded")
        assert describe(client) == before


SLOW = {**SETTINGS, "log.flush.interval.messages": "1"}  # with a disk that the test stops


def test_a_dead_member_is_removed_while_others_commit(tmp_path: Path, disk: Disk) -> None:
    """In a busy group, something is being stored at any time."""
    settings = {**SLOW, "group.consumer.session.timeout.ms": "500"}
    with BrokerThread(tmp_path / "data", settings, disk.open_file) as thread, connect(thread) as client:
        a = Consumer(client)
        settle(a)
        began = disk.began
        disk.gate.clear()
        begin_commit(client, a, 5)
        until(lambda: disk.began > began, "the fsync to begin")
        until(lambda: not members(thread), "the member to expire")
        disk.gate.set()
        assert client.receive().topics[0].partitions[0].error_code == 0


def test_a_member_does_not_expire_while_its_response_waits_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    settings = {**SLOW, "group.consumer.session.timeout.ms": "500"}
    with BrokerThread(tmp_path / "data", settings, disk.open_file) as thread, connect(thread) as client:
        a = Consumer(client)
        began = disk.began
        disk.gate.clear()
        a.begin()
        until(lambda: disk.began > began, "the fsync to begin")
        time.sleep(0.8)  # longer than the session
        assert members(thread) == [a.member_id]
        disk.gate.set()
        assert a.end() == 0
        assert a.beat() == 0
        until(lambda: not members(thread), "the member to expire")


def test_an_update_of_another_member_is_no_failed_store(tmp_path: Path, disk: Disk, assigning: Work) -> None:
    """A heartbeat with nothing to store waits for the log. Meanwhile another member joins, which is not stored yet."""
    with (
        BrokerThread(tmp_path / "data", SLOW, disk.open_file) as thread,
        connect(thread) as one,
        connect(thread) as two,
        connect(thread) as three,
    ):
        a, b = Consumer(one), Consumer(two)
        settle(a)
        began = disk.began
        disk.gate.clear()
        begin_commit(three, a, 5)
        until(lambda: disk.began > began, "the fsync to begin")
        a.begin()
        assert not one.has_answer(0.1)
        assigning.gate.clear()
        computed = assigning.began
        b.begin()
        until(lambda: assigning.began > computed, "the assignment to be computed")
        disk.gate.set()
        assert a.end() == 0
        assigning.gate.set()
        assert b.end() == 0
        assert three.receive().topics[0].partitions[0].error_code == 0


def test_members_that_join_while_an_assignment_is_computed_share_the_next_one(tmp_path: Path, assigning: Work) -> None:
    with BrokerThread(tmp_path / "data", SETTINGS) as thread, contextlib.ExitStack() as stack:
        first, *others = (Consumer(stack.enter_context(connect(thread))) for _ in range(PARTITIONS))
        assigning.gate.clear()
        first.begin()
        until(lambda: assigning.began == 1, "the assignment to be computed")
        for each in others:
            each.begin()
        until(lambda: len(members(thread)) == PARTITIONS, "all to join")
        assigning.gate.set()
        for each in (first, *others):
            assert each.end() == 0
        assert assigning.began == 2
        settle(first, *others)
        assert [each.count for each in (first, *others)] == [1] * PARTITIONS
        assert assigning.began == 2


def test_members_share_one_match_of_their_pattern(tmp_path: Path, matching: Work) -> None:
    with BrokerThread(tmp_path / "data", SETTINGS) as thread, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(thread)) for _ in range(3)]
        consumers = [Consumer(client, topics=None, subscribed_topic_regex="t.*") for client in clients]

        def beat(matches: int) -> None:
            """Send the heartbeats of all members at once."""
            matching.began = 0
            matching.gate.clear()
            for each in consumers:
                each.begin()
            until(lambda: matching.began, "a match")
            assert not any(client.has_answer(0.1) for client in clients)
            matching.gate.set()
            for each in consumers:
                assert each.end() == 0
            assert matching.began == matches

        beat(1)  # as they join
        settle(*consumers)
        create_topic(clients[0], "t2", 3)
        beat(1)  # as the topics have changed
        settle(*consumers)
        assert [each.count for each in consumers] == [3, 3, 3]
        assert matching.began == 1


def test_a_heartbeat_whose_pattern_is_matched_while_the_leadership_ends_looks_for_the_next_coordinator(
    tmp_path: Path, matching: Work
) -> None:
    with BrokerThread(tmp_path / "data", SETTINGS) as thread, connect(thread) as client:
        a = Consumer(client, topics=None, subscribed_topic_regex="t.*")
        settle(a)
        create_topic(client, "t2", 3)
        matching.gate.clear()
        began = matching.began
        a.begin()
        until(lambda: matching.began > began, "the match")
        thread.run(elect(thread.broker, THEIRS, index_of(thread.broker, "g")))
        matching.gate.set()
        assert a.end() == ErrorCode.NOT_COORDINATOR


def test_a_large_assignment_is_computed_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "LARGE_ASSIGNMENT", 0)
    monkeypatch.setattr(consumer_groups, "BATCH_BYTES", 100)
    with BrokerThread(tmp_path / "data", SETTINGS) as thread, connect(thread) as client:
        a, b = Consumer(client), Consumer(client)
        settle(a, b)
        assert (a.count, b.count) == (3, 3)

        assert thread.look(lambda broker: broker.coordinator.failures) == 0


@pytest.mark.parametrize("policy", ["bidirectional", "disabled"])
def test_a_classic_group_of_others_than_consumers_is_not_upgraded(tmp_path: Path, policy: str) -> None:
    settings = {**SETTINGS, "group.consumer.migration.policy": policy}
    with BrokerThread(tmp_path / "data", settings) as thread, connect(thread) as client:
        client.enter()  # its assignment is not one of consumers
        assert Consumer(client).beat() == ErrorCode.GROUP_ID_NOT_FOUND
        assert describe(client).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_member_that_replaces_the_last_of_the_consumer_protocol_downgrades_the_group(
    thread: BrokerThread,
) -> None:
    with connect(thread) as client:
        settle(Consumer(client, instance_id="one"))
        protocol = JoinGroupRequestProtocol(name="range", metadata=subscription("t", owned=bytes(4)))
        join = JoinGroupRequest(
            group_id="g",
            member_id="",
            group_instance_id="one",
            session_timeout_ms=6000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = client.ask(join, 7)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert describe(client).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        join.member_id = joined.member_id
        again = client.ask(join, 7)
        assert (again.error_code, again.generation_id, again.leader) == (0, 2, joined.member_id)


def test_an_empty_group_changes_its_protocol_either_way(thread: BrokerThread) -> None:
    with connect(thread) as client:
        member_id, generation = client.enter()
        client.leave(member_id)
        a = Consumer(client)
        settle(a)
        assert a.epoch > generation
        a.send(member_epoch=-1)
        assert describe(client).group_state == "Empty"
        member_id, later = client.enter()
        assert later > a.epoch
        assert client.heartbeat(member_id, later) == 0
        assert describe(client).error_code == ErrorCode.GROUP_ID_NOT_FOUND
