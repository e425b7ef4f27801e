"""Groups move with the leadership of their partition: what is answered meanwhile, and what is there afterwards."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from skylog.broker import Broker, group_coordinator, leadership, state_topic
from skylog.broker.group_shard import MemberId
from skylog.broker.partition import Partition
from skylog.broker.transaction_markers import Decision
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import CommittedOffset, Group, GroupConfig, Groups, GroupState
from skylog.groups.groups import ORPHANED_MS
from skylog.model import CONSUMER_OFFSETS_TOPIC, TopicPartition
from skylog.protocol.delete_groups import DeleteGroupsRequest
from skylog.protocol.delete_topics import DeleteTopicsRequest
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from skylog.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from skylog.protocol.list_groups import ListGroupsRequest
from skylog.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from skylog.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from skylog.records import Record, build_batch, stamp_offset
from skylog.testing import ManualClock
from skylog.transactions import Producer
from tests.groups.client import GroupClient
from tests.groups.driver import subscription
from tests.groups.test_coordinator import commit_request

from .conftest import create_topic
from .leaders import OURS, THEIRS, elect, index_of, replica_of, truncate
from .process import BrokerThread, until
from .test_flush import Disk

OTHER = "of another partition"
SETTINGS = {"offsets.topic.num.partitions": "4"}
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Stage:
    """A broker with a topic `t` and an offsets topic, whose leaders the test elects."""

    def __init__(self, thread: BrokerThread) -> None:
        self.thread = thread
        with GroupClient(thread.port) as client:
            create_topic(client, "t")
            client.find()
        assert index_of(thread.broker, OTHER) != index_of(thread.broker, "g")

    def client(self) -> GroupClient:
        return GroupClient(self.thread.port)

    def elect(self, leader: int, group: str = "g", in_sync: tuple[int, ...] = (OURS,)) -> None:
        broker = self.thread.broker
        self.thread.run(elect(broker, leader, index_of(broker, group), in_sync=in_sync))

    def replica(self, group: str = "g") -> Any:
        return replica_of(self.thread.broker, group)

    def end_offset(self) -> int:
        return self.thread.look(lambda broker: replica_of(broker, "g").log.log_end_offset)

    def truncate(self, end_offset: int) -> None:
        self.thread.look(lambda broker: truncate(broker, "g", end_offset))

    def state(self, group: str = "g") -> GroupState | None:
        def look(broker: Broker) -> GroupState | None:
            found = broker.coordinator.shard(group).group(group)
            return found.state if isinstance(found, Group) else None

        return self.thread.look(look)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with BrokerThread(tmp_path / "data", SETTINGS) as thread:
        yield Stage(thread)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.gate.set()


@pytest.fixture
def slow_stage(tmp_path: Path, disk: Disk) -> Iterator[Stage]:
    """A stage on which every append waits for the disk."""
    settings = {**SETTINGS, "log.flush.interval.messages": "1"}
    with BrokerThread(tmp_path / "data", settings, disk.open_file) as thread:
        yield Stage(thread)
        disk.gate.set()


class Loads:
    """Keeps loads waiting while `gate` is closed, after they have read their records.

    `errors` fail the next loads; the one after them waits.
    """

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        self.errors: list[Exception] = []
        self._parse = leadership._parse

    def parse(self, part: Any) -> Any:
        parsed = self._parse(part)
        self.waiting += 1
        assert self.gate.wait(20)
        if self.errors:
            error = self.errors.pop()
            if not self.errors:
                self.gate.clear()
            raise error
        return parsed

    def wait_for(self, count: int) -> None:
        until(lambda: self.waiting >= count, "the load to read its records")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loads]:
    loads = Loads()
    monkeypatch.setattr(leadership, "_parse", loads.parse)
    yield loads
    loads.gate.set()


def join_request(member_id: str = "", group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    )


def sync_request(member_id: str, generation: int, *members: str) -> SyncGroupRequest:
    assignments = [SyncGroupRequestAssignment(member_id=each, assignment=b"part") for each in members]
    return SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id, assignments=assignments)


class Pair:
    """Two members of `g` that have joined, and of which none has synced: the leader and a follower."""

    def __init__(self, stage: Stage) -> None:
        clients = [stage.client(), stage.client()]
        ids = [client.ask(join_request(), 7).member_id for client in clients]
        for client, member_id in zip(clients, ids, strict=True):
            client.send(join_request(member_id), 7)
        answers = [client.receive() for client in clients]
        assert [answer.error_code for answer in answers] == [0, 0]
        first = ids.index(answers[0].leader)
        self.leader, self.follower = clients[first], clients[1 - first]
        self.leader_id, self.follower_id = ids[first], ids[1 - first]
        self.generation = answers[0].generation_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leader.close()
        self.follower.close()

    def send_sync(self) -> None:
        """Let the follower wait for its assignment."""
        self.follower.send(sync_request(self.follower_id, self.generation), 4)
        assert not self.follower.has_answer(0.05)

    def send_assignment(self) -> None:
        self.leader.send(sync_request(self.leader_id, self.generation, self.leader_id, self.follower_id), 4)


def test_a_waiting_join_is_rejected_and_the_member_joins_the_next_coordinator(stage: Stage) -> None:
    with stage.client() as first, stage.client() as second:
        first.enter()
        member_id = second.ask(join_request(), 7).member_id
        second.send(join_request(member_id), 7)
        until(lambda: stage.state() is GroupState.PREPARING, "the rebalance to begin")
        stage.elect(THEIRS)
        answer = second.receive()
        assert (answer.error_code, answer.member_id) == (NOT_COORDINATOR, member_id)
        assert second.ask(join_request(member_id), 7).error_code == NOT_COORDINATOR
        stage.elect(OURS)
        until(lambda: second.ask(join_request(), 7).error_code != LOADING, "the group to be loaded")
        assert stage.state() is GroupState.STABLE, "with the member that was stored"


def test_a_waiting_sync_is_rejected(stage: Stage) -> None:
    with Pair(stage) as members:
        members.send_sync()
        stage.elect(THEIRS)
        assert members.follower.receive().error_code == NOT_COORDINATOR
        members.send_assignment()
        assert members.leader.receive().error_code == NOT_COORDINATOR
        stage.elect(OURS)
        assert stage.state() is None, "nothing of the group had been stored"


def test_an_assignment_that_is_being_stored_is_rejected_and_never_takes_effect(slow_stage: Stage, disk: Disk) -> None:
    stage = slow_stage
    with Pair(stage) as members:
        end_offset, began = stage.end_offset(), disk.began
        disk.gate.clear()
        members.send_sync()
        members.send_assignment()
        until(lambda: disk.began > began, "the fsync to begin")
        stage.elect(THEIRS)
        assert members.leader.receive().error_code == NOT_COORDINATOR
        assert members.follower.receive().error_code == NOT_COORDINATOR
        stage.truncate(end_offset)
        stage.elect(OURS)
        assert members.leader.ask(join_request(), 7).error_code == ErrorCode.MEMBER_ID_REQUIRED
        disk.gate.set()
        until(lambda: disk.finished == disk.began, "the fsync to end")
        assert stage.state() is GroupState.EMPTY
        assert stage.thread.look(lambda broker: broker.coordinator.failures) == 0


@pytest.mark.parametrize("ends", ["while this broker leads again", "before"])
def test_a_commit_in_flight_is_rejected_and_never_takes_effect(slow_stage: Stage, disk: Disk, ends: str) -> None:
    """Commit 2 waits for the disk when the broker stops to lead. The next leader does not have it."""
    stage = slow_stage
    with stage.client() as committer, stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        end_offset, began = stage.end_offset(), disk.began
        disk.gate.clear()
        committer.send(commit_request("g", "t", 2), 8)
        until(lambda: disk.began > began, "the fsync to begin")
        stage.elect(THEIRS)
        if ends == "before":
            disk.gate.set()
            assert committer.receive().topics[0].partitions[0].error_code == NOT_COORDINATOR
        stage.truncate(end_offset)
        stage.elect(OURS)
        assert client.committed() == {("t", 0): (1, "")}
        if ends != "before":
            client.send(commit_request("g", "t", 3), 8)
            until(lambda: stage.end_offset() > end_offset, "a commit at the offset of the one that was cut off")
            disk.gate.set()
            assert committer.receive().topics[0].partitions[0].error_code == NOT_COORDINATOR
            assert client.receive().topics[0].partitions[0].error_code == ErrorCode.NONE
        assert client.committed() == {("t", 0): (1 if ends == "before" else 3, "")}


def test_a_deletion_in_flight_does_not_delete_from_the_next_leadership(slow_stage: Stage, disk: Disk) -> None:
    stage = slow_stage
    with stage.client() as committer, stage.client() as deleter, stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        began = disk.began
        disk.gate.clear()
        committer.send(commit_request("g", "t", 2), 8)
        until(lambda: disk.began > began, "the fsync to begin")
        deleter.send(DeleteGroupsRequest(groups_names=["g"]), 2)
        until(lambda: stage.state() is GroupState.DEAD, "the deletion to wait for the commit")
        stage.elect(THEIRS)
        stage.elect(OURS)
        disk.gate.set()
        assert client.committed() == {("t", 0): (2, "")}, "it is in the log, so it may be there"
        assert committer.receive().topics[0].partitions[0].error_code == NOT_COORDINATOR
        assert deleter.receive().results[0].error_code == NOT_COORDINATOR
        assert client.committed() == {("t", 0): (2, "")}
        assert stage.state() is GroupState.EMPTY


def copy_commit(broker: Broker, offset: int) -> None:
    """Append a commit of `g` as a follower does, with the epoch of its leader."""
    key, value = Groups(GroupConfig()).offset_record("g", TopicPartition("t", 0), CommittedOffset(offset, -1, "", 0))
    partition = replica_of(broker, "g")
    batch = build_batch([Record(value=value, key=key, timestamp=0)])
    stamp_offset(batch, partition.log.log_end_offset, partition.leader_epoch)
    partition.log.append_as_follower(memoryview(batch), 1 << 30, broker.clock.now_ms())


def test_what_another_leader_stored_is_there_when_this_broker_leads_again(stage: Stage) -> None:
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        stage.elect(THEIRS)
        stage.thread.look(lambda broker: copy_commit(broker, 5))
        stage.elect(OURS)
        assert client.committed() == {("t", 0): (5, "")}


def test_an_offset_is_served_when_the_replicas_in_sync_have_it(stage: Stage) -> None:
    """If the next leader did not have it, a consumer would have seen the committed offset move back."""
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        stage.elect(THEIRS)
        stage.thread.look(lambda broker: copy_commit(broker, 5))
        stage.elect(OURS, in_sync=(OURS, THEIRS))
        for _ in range(10):
            assert client.ask(fetch, 8).groups[0].error_code == LOADING
            time.sleep(0.02)
        stage.thread.look(lambda broker: replica_of(broker, "g").advance_high_watermark(1 << 30))
        until(lambda: client.ask(fetch, 8).groups[0].error_code == ErrorCode.NONE, "the group")
        assert client.committed() == {("t", 0): (5, "")}


def test_a_new_epoch_of_the_same_leader_disturbs_no_member(stage: Stage) -> None:
    with Pair(stage) as members:
        members.send_sync()
        stage.elect(OURS)
        members.send_assignment()
        assert members.leader.receive().assignment == b"part"
        assert members.follower.receive().assignment == b"part"
        assert members.follower.commit(1, members.follower_id, members.generation) == ErrorCode.NONE


# -- loading


def codes(client: GroupClient) -> dict[str, int]:
    """The answers to all requests about group `g`."""
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    return {
        "join": client.ask(join_request(), 7).error_code,
        "sync": client.ask(sync_request("m", 1), 4).error_code,
        "leave": client.ask(leave, 5).error_code,
        "heartbeat": client.heartbeat("m", 1),
        "commit": client.commit(9),
        "fetch": client.ask(fetch, 8).groups[0].error_code,
        "describe": client.ask(DescribeGroupsRequest(groups=["g"]), 5).groups[0].error_code,
        "delete": client.delete(),
        "delete offsets": client.ask(OffsetDeleteRequest(group_id="g", topics=[]), 0).error_code,
    }


def test_requests_about_groups_of_other_brokers_and_of_loading_ones_are_rejected(stage: Stage, loads: Loads) -> None:
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        assert client.commit(1, group=OTHER) == ErrorCode.NONE
        stage.elect(THEIRS)
        assert set(codes(client).values()) == {NOT_COORDINATOR}
        answer = client.ask(ListGroupsRequest(), 4)
        assert (answer.error_code, [each.group_id for each in answer.groups]) == (0, [OTHER])
        loads.gate.clear()
        stage.elect(OURS)
        loads.wait_for(1)
        answers = codes(client)
        assert answers.pop("heartbeat") == ErrorCode.NONE, "the member goes on, as in Kafka"
        assert set(answers.values()) == {LOADING}
        answer = client.ask(ListGroupsRequest(), 4)
        assert (answer.error_code, [each.group_id for each in answer.groups]) == (LOADING, [OTHER])
        loads.gate.set()
        assert client.groups() == {"g", OTHER}
        assert client.committed() == {("t", 0): (1, "")}


def test_a_load_that_outlives_its_leadership_serves_nothing(stage: Stage, loads: Loads) -> None:
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        stage.elect(THEIRS)
        loads.gate.clear()
        stage.elect(OURS)
        loads.wait_for(1)
        stage.elect(THEIRS)
        assert set(codes(client).values()) == {NOT_COORDINATOR}
        loads.gate.set()
        until(lambda: not stage.thread.look(lambda broker: broker.coordinator._topic._tasks), "the load to end")
        assert set(codes(client).values()) == {NOT_COORDINATOR}
        assert stage.thread.look(lambda broker: broker.coordinator.failures) == 0


def test_a_leadership_that_begins_during_the_load_of_an_earlier_one_loads_from_scratch(
    stage: Stage, loads: Loads
) -> None:
    """The first load has read offset 1, which is cut off before the second one begins."""
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        assert client.commit(1, group="g") == ErrorCode.NONE
        stage.elect(THEIRS)
        loads.gate.clear()
        stage.elect(OURS)
        loads.wait_for(1)
        stage.elect(THEIRS)
        stage.truncate(0)
        stage.thread.look(lambda broker: copy_commit(broker, 7))
        stage.elect(OURS)
        loads.wait_for(2)
        loads.gate.set()
        assert client.committed() == {("t", 0): (7, "")}


async def commit_in_transaction(broker: Broker, producer_id: int, offset: int) -> None:
    """Commit an offset of `g` in an open transaction."""
    offsets = {TopicPartition("t", 0): CommittedOffset(offset, -1, "", 0)}
    await broker.coordinator.shard("g").commit_in_transaction("g", MemberId("", None, -1), (producer_id, 0), offsets)


async def end_transaction(broker: Broker, producer_id: int) -> None:
    """Commit a transaction in the partition of `g`."""
    name = TopicPartition(CONSUMER_OFFSETS_TOPIC, index_of(broker, "g"))
    await broker.transactions.markers.write(name, Decision(Producer(producer_id, 0), True, 0))


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_load_that_failed_is_tried_again(
    stage: Stage, loads: Loads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, attempt: int
) -> None:
    """During an attempt a transaction ends, and a topic is deleted."""
    monkeypatch.setattr(state_topic, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(leadership, "_LOAD_BYTES", 1)  # so that what comes after the beginning is not read
    broker = stage.thread.broker
    with stage.client() as client:
        create_topic(client, "t2")
        for topic in ("t", "t2"):
            assert client.commit(1, topic=topic) == ErrorCode.NONE
        stage.thread.run(commit_in_transaction(broker, 77, 5))
        stage.elect(THEIRS)
        loads.gate.clear()
        loads.errors = [OSError("the disk does not answer")]
        stage.elect(OURS)
        for number in (1, 2):
            loads.wait_for(number)
            if number == attempt:
                stage.thread.run(end_transaction(broker, 77))
                client.ask(DeleteTopicsRequest(topic_names=["t2"], timeout_ms=10_000), 5)
            assert client.commit(2) == LOADING
            loads.gate.set()
        until(lambda: not stage.thread.look(lambda broker: broker.coordinator.is_loading), "the group")
        assert client.committed() == {("t", 0): (5, "")}
        assert stage.thread.look(lambda broker: broker.coordinator.failures) == 1
        assert "cannot load __consumer_offsets" in caplog.text


def test_a_load_is_tried_again_after_longer_and_longer_times_until_the_leadership_ends(
    stage: Stage, loads: Loads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_topic, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(state_topic, "LAST_RETRY_S", 0.02)
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        stage.elect(THEIRS)
        loads.errors = [OSError("the disk does not answer")] * 1000
        stage.elect(OURS)
        loads.wait_for(4)
        assert client.commit(2) == LOADING
        stage.elect(THEIRS)
        until(lambda: not stage.thread.look(lambda broker: broker.coordinator._topic._tasks), "the load to end")
        assert client.commit(2) == NOT_COORDINATOR
        tracebacks = [record for record in caplog.records if record.exc_info]
        assert len(tracebacks) == 1, "the others say the same"


def test_a_partition_that_was_offline_at_the_start_is_loaded_when_it_is_opened(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir, SETTINGS) as thread, Stage(thread).client() as client:
        assert client.commit(1) == ErrorCode.NONE
        folder = data_dir / f"{CONSUMER_OFFSETS_TOPIC}-{index_of(thread.broker, 'g')}"
    shutil.move(folder, tmp_path / "aside")
    folder.write_text("a file in the way")
    with BrokerThread(data_dir, SETTINGS) as thread, GroupClient(thread.port) as client:
        assert client.commit(2) == LOADING
        assert client.ask(ListGroupsRequest(), 4).error_code == LOADING
        folder.unlink()
        shutil.move(tmp_path / "aside", folder)
        thread.run(thread.broker.replicas.reopen_offline())
        assert client.committed() == {("t", 0): (1, "")}
        assert client.commit(2) == ErrorCode.NONE


def test_groups_are_not_served_before_they_are_loaded_at_the_start(tmp_path: Path, loads: Loads) -> None:
    groups = [f"group-{number}" for number in range(20)]
    with BrokerThread(tmp_path / "data", SETTINGS) as thread, Stage(thread).client() as client:
        for group in groups:
            assert client.commit(1, group=group) == ErrorCode.NONE
    loads.gate.clear()
    with BrokerThread(tmp_path / "data", SETTINGS) as thread, GroupClient(thread.port) as client:
        loads.wait_for(state_topic.LOADS_AT_ONCE)
        assert {client.commit(2, group=group) for group in groups} == {LOADING}
        assert loads.waiting == state_topic.LOADS_AT_ONCE, "the others wait"
        loads.gate.set()
        assert {group: client.committed(group) for group in groups} == {key: {("t", 0): (1, "")} for key in groups}


# -- what is left of a leadership


@pytest.mark.parametrize("call", ["a commit", "a commit in a transaction", "a deletion of offsets", "a description"])
def test_a_request_that_has_waited_while_the_leadership_ended_looks_for_the_next_coordinator(
    stage: Stage, call: str
) -> None:
    """Some wait after they have got the shard. It is freed then, but that does not mean that the member is gone."""
    name, member = TopicPartition("t", 0), MemberId("m", None, 1)
    offsets = {name: CommittedOffset(1, -1, "", 0)}
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        shard = stage.thread.look(lambda broker: broker.coordinator.shard("g"))
        stage.elect(THEIRS)
        until(lambda: not stage.thread.look(lambda _: shard.all_groups()), "the groups to be freed")

        async def use() -> None:
            if call == "a commit":
                await shard.commit_offsets("g", member, offsets)
            elif call == "a commit in a transaction":
                await shard.commit_in_transaction("g", member, (77, 0), offsets)
            elif call == "a deletion of offsets":
                await shard.delete_offsets("g", [name])
            else:
                shard.group("g")

        with pytest.raises(KafkaError) as caught:
            stage.thread.run(use())
        assert caught.value.code is NOT_COORDINATOR


def test_a_commit_in_a_transaction_that_is_verified_while_the_leadership_ends_is_not_taken_for_a_late_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ILLEGAL_GENERATION would make the producer abort, and the consumer give up its partitions."""
    broker = stage.thread.broker
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=77,
        producer_epoch=0,
        generation_id=1,
        member_id="m",
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        shard = stage.thread.look(lambda broker: broker.coordinator.shard("g"))

        async def verify(_: str, producer: Producer, partitions: list[Partition]) -> dict[TopicPartition, int]:
            stamps = {each.name: each.verification_stamp(producer.producer_id) for each in partitions}
            await elect(broker, THEIRS, index_of(broker, "g"))
            await shard.free()
            return stamps

        monkeypatch.setattr(broker.transactions.verifier, "verify", verify)
        assert client.ask(request, 3).topics[0].partitions[0].error_code == NOT_COORDINATOR


def test_a_deletion_of_offsets_that_waits_while_the_leadership_ends_is_rejected(slow_stage: Stage, disk: Disk) -> None:
    stage = slow_stage
    rows = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    with stage.client() as committer, stage.client() as deleter, stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        began = disk.began
        disk.gate.clear()
        committer.send(commit_request("g", "t", 2), 8)
        until(lambda: disk.began > began, "the fsync to begin")
        deleter.send(OffsetDeleteRequest(group_id="g", topics=rows), 0)
        assert not deleter.has_answer(0.1)
        stage.elect(THEIRS)
        disk.gate.set()
        assert deleter.receive().error_code == NOT_COORDINATOR, "nothing was deleted"


@pytest.mark.parametrize("what", ["offsets", "group"])
def test_what_was_deleted_in_the_log_is_deleted_although_it_was_not_replicated_in_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Otherwise it would be there until the next leader replays the log."""
    append = leadership.Leadership.append

    def append_too_late(self: leadership.Leadership, *arguments: Any) -> Any:
        append(self, *arguments)
        future = asyncio.get_running_loop().create_future()
        future.set_exception(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        return future

    rows = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        with monkeypatch.context() as patch:
            patch.setattr(leadership.Leadership, "append", append_too_late)
            if what == "offsets":
                code = client.ask(OffsetDeleteRequest(group_id="g", topics=rows), 0).error_code
            else:
                code = client.delete()
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.committed() == {}
        assert client.groups() == ({"g"} if what == "offsets" else set())
        assert client.commit(2) == ErrorCode.NONE
        stage.elect(THEIRS)
        stage.elect(OURS)
        assert client.committed() == {("t", 0): (2, "")}


@pytest.mark.parametrize("what", ["offsets", "group"])
def test_what_could_not_be_deleted_in_the_log_stays(stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    rows = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    with stage.client() as client:
        assert client.commit(1) == ErrorCode.NONE
        with monkeypatch.context() as patch:
            patch.setattr(leadership.Leadership, "append", fail)
            if what == "offsets":
                code = client.ask(OffsetDeleteRequest(group_id="g", topics=rows), 0).error_code
            else:
                code = client.delete()
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.committed() == {("t", 0): (1, "")}
        assert client.commit(2) == ErrorCode.NONE, "the group is not dead"


def test_nothing_of_a_group_stays_in_memory_after_its_leadership(stage: Stage) -> None:
    with stage.client() as client:
        client.enter()
        assert client.commit(1, group="k") == ErrorCode.NONE

        def look(broker: Broker) -> list[weakref.ref[Any]]:
            shard = broker.coordinator.shard("g")
            return [weakref.ref(each) for each in (shard, shard._groups, *shard.all_groups())]

        found = stage.thread.look(look)
        assert len(found) == 4
        stage.elect(THEIRS)
        until(lambda: not any(each() for each in found), "the groups to be freed")


def test_sessions_of_groups_that_this_broker_does_not_serve_do_not_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "TICK_SECONDS", 0.01)
    with BrokerThread(tmp_path / "data", {**SETTINGS, "group.min.session.timeout.ms": "500"}) as thread:
        stage = Stage(thread)
        with stage.client() as client:
            member_id, generation = client.enter(session_ms=500)
            stage.elect(THEIRS)
            end_offset = stage.end_offset()
            time.sleep(0.8)  # longer than the session
            assert stage.end_offset() == end_offset, "nothing was stored"
            stage.elect(OURS)
            until(lambda: not stage.thread.look(lambda broker: broker.coordinator.is_loading), "the group")
            until(lambda: stage.state() is GroupState.EMPTY, "the session to expire, from the load on")
            assert client.heartbeat(member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID
            assert stage.end_offset() > end_offset


def test_offsets_expire_only_where_this_broker_leads(stage: Stage) -> None:
    old = [(TopicPartition("t", 0), CommittedOffset(7, -1, "", 0))]
    with stage.client() as client:
        for group in ("g", OTHER):
            assert client.commit(7, group=group) == ErrorCode.NONE
            stage.thread.look(lambda broker: broker.coordinator.shard(group)._groups.commit(group, old))  # noqa: B023
        stage.elect(THEIRS)
        end_offset = stage.end_offset()
        stage.thread.run(stage.thread.broker.coordinator.expire_offsets())
        assert client.groups() == set()
        assert stage.end_offset() == end_offset
        stage.elect(OURS)
        assert client.committed() == {("t", 0): (7, "")}
        assert stage.thread.look(lambda broker: broker.coordinator.failures) == 0


@pytest.mark.parametrize("when", ["served", "loading"])
def test_each_coordinator_removes_the_offsets_of_a_deleted_topic_from_its_own_groups(
    stage: Stage, loads: Loads, when: str
) -> None:
    with stage.client() as client:
        for group in ("g", OTHER):
            assert client.commit(7, group=group) == ErrorCode.NONE
        stage.elect(THEIRS, OTHER)
        if when == "loading":
            stage.elect(THEIRS)
            loads.gate.clear()
            stage.elect(OURS)
            loads.wait_for(1)
        end_offset = stage.thread.look(lambda broker: replica_of(broker, OTHER).log.log_end_offset)
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        loads.gate.set()
        assert client.committed() == {}
        until(lambda: stage.end_offset() == 2, "the tombstone")
        assert stage.replica(OTHER).log.log_end_offset == end_offset


def test_offsets_left_over_from_a_topic_that_no_coordinator_saw_deleted_are_removed_later(stage: Stage) -> None:
    with stage.client() as client:
        create_topic(client, "t2")
        assert client.commit(7) == ErrorCode.NONE
        assert client.commit(7, topic="t2") == ErrorCode.NONE
        stage.elect(THEIRS)
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        stage.elect(OURS)
        assert set(client.committed()) == {("t", 0), ("t2", 0)}
        stage.thread.run(stage.thread.broker.coordinator.expire_offsets())
        assert set(client.committed()) == {("t", 0), ("t2", 0)}, "perhaps this broker has not heard of the topic yet"
        clock = ManualClock(stage.thread.broker.clock.now_ms() + ORPHANED_MS)
        stage.thread.broker.clock = clock
        stage.thread.run(stage.thread.broker.coordinator.expire_offsets())
        assert set(client.committed()) == {("t2", 0)}
