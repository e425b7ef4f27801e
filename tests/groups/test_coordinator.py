"""Groups through the broker's API: acknowledged changes are in `__consumer_offsets` and survive a crash."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylog.broker import Broker, group_coordinator, offset_removal
from skylog.broker.group_log import GroupLog
from skylog.broker.group_shard import MemberId
from skylog.broker.handlers.join_group import MAX_PROTOCOLS
from skylog.broker.state_topic import partition_of
from skylog.errors import ErrorCode
from skylog.groups import CommittedOffset, PendingOffsets
from skylog.model import TopicPartition
from skylog.protocol.delete_groups import DeleteGroupsRequest
from skylog.protocol.delete_topics import DeleteTopicsRequest
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.broker.conftest import create_topic
from tests.broker.leaders import replica_of
from tests.broker.process import BrokerProcess, BrokerThread, until
from tests.broker.test_flush import Disk

from .client import GroupClient

NOTE = "grüße"


def commit_request(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])])


def connect(broker: BrokerProcess | BrokerThread) -> GroupClient:
    client = GroupClient(broker.port)
    if "t" not in {topic.name for topic in client.metadata().topics}:
        create_topic(client, "t")
    client.find()
    return client


def removing(broker: Broker) -> bool:
    """Whether offsets of deleted topics are still to be deleted from the log."""
    return any(shard._removal.under_way for shard in broker.coordinator.shards())


def scheduled_ticks(broker: Broker) -> int:
    return sum(len(shard._timers) for shard in broker.coordinator.shards())


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", {"group.min.session.timeout.ms": "500"}) as broker:
        yield broker
        assert not broker.tracebacks()


@pytest.fixture(params=["", "1"], ids=["page-cache", "fsync"])
def thread(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerThread]:
    """With and without an fsync for each record: two paths through the coordinator."""
    settings = {"log.flush.interval.messages": request.param} if request.param else {}
    with BrokerThread(tmp_path / "data", settings) as broker:
        yield broker


def test_a_commit_that_the_network_has_held_back_does_not_move_the_offset_back(process: BrokerProcess) -> None:
    """The member has given up its first connection, and has committed on another one. Then the first one arrives."""
    with GroupClient(process.port) as first, GroupClient(process.port) as second:
        create_topic(first, "t")
        first.find()
        member = first.enter()
        assert first.commit(5, *member) == 0
        assert second.commit(9, *member) == 0
        assert first.commit(7, *member) == ErrorCode.NOT_COORDINATOR
        assert second.committed() == {("t", 0): (9, "")}
        assert second.commit(3, *member) == 0, "a member may go back itself"
        assert second.committed() == {("t", 0): (3, "")}
        assert first.commit(1, group="without members") == second.commit(2, group="without members") == 0
        assert first.commit(3, group="without members") == 0


def test_commits_notes_and_members_survive_a_kill(process: BrokerProcess) -> None:
    with connect(process) as client:
        member_id, generation = client.enter()
        assert client.commit(7, member_id, generation, note=NOTE) == 0
        assert client.commit(3, group="unmanaged") == 0
    process.kill()
    process.start()
    with connect(process) as client:
        assert client.committed() == {("t", 0): (7, NOTE)}
        assert client.committed("unmanaged") == {("t", 0): (3, "")}
        end = time.monotonic() + 0.3
        while time.monotonic() < end:  # some rounds of the coordinator's clock
            assert client.groups() == {"g", "unmanaged"}
        assert client.heartbeat(member_id, generation) == 0
        assert client.commit(8, member_id, generation) == 0
        assert client.commit(9, member_id, generation - 1) == ErrorCode.ILLEGAL_GENERATION


def test_deletions_survive_a_kill(process: BrokerProcess) -> None:
    with connect(process) as client:
        member_id, _ = client.enter()
        client.leave(member_id)
        assert client.commit(7) == 0
        assert client.delete() == 0
    process.kill()
    process.start()
    with connect(process) as client:
        assert client.committed() == {}
        assert client.groups() == set()


@pytest.mark.parametrize("what", ["the group", "the offset"])
def test_a_deletion_covers_commits_that_wait_for_the_disk(tmp_path: Path, what: str) -> None:
    """The commit is in the log, but not yet in memory. Without a tombstone it would be back after a restart."""
    disk = Disk()
    settings = {"log.flush.interval.messages": "1"}
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir, settings, disk.open_file) as thread, connect(thread) as deleter:
        create_topic(deleter, "t2")
        assert deleter.commit(1) == 0
        began = disk.began
        with GroupClient(thread.port) as committer:
            disk.gate.clear()
            committer.send(commit_request("g", "t2", 7), 8)
            until(lambda: disk.began > began, "the fsync of the commit to begin")
            if what == "the group":
                deleter.send(DeleteGroupsRequest(groups_names=["g"]), 2)
            else:
                row = OffsetDeleteRequestPartition(partition_index=0)
                topics = [OffsetDeleteRequestTopic(name=name, partitions=[row]) for name in ("t", "t2")]
                deleter.send(OffsetDeleteRequest(group_id="g", topics=topics), 0)
            assert not deleter.has_answer(0.1)
            disk.gate.set()
            assert committer.receive().topics[0].partitions[0].error_code == 0
            deleter.receive()
    with BrokerThread(data_dir, settings) as thread, connect(thread) as client:
        assert client.committed() == {}


def test_commits_are_applied_in_the_order_of_the_log(tmp_path: Path) -> None:
    """The second commit waits for an fsync, the third does not. It must not be overwritten by the second."""
    disk = Disk()
    settings = {"log.flush.interval.messages": "2"}
    with BrokerThread(tmp_path / "data", settings, disk.open_file) as thread, connect(thread) as first:
        assert first.commit(1) == 0
        began = disk.began
        with GroupClient(thread.port) as second:
            disk.gate.clear()
            first.send(commit_request("g", "t", 2), 8)
            until(lambda: disk.began > began, "the fsync to begin")
            second.send(commit_request("g", "t", 3), 8)
            assert not second.has_answer(0.1)
            disk.gate.set()
            first.receive()
            second.receive()
            assert second.committed() == {("t", 0): (3, "")}


def test_a_topic_created_again_has_no_offsets_of_the_deleted_one(tmp_path: Path) -> None:
    groups = [f"g{number}" for number in range(200)]
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir) as thread, connect(thread) as client:
        for group in groups:
            assert client.commit(1000, group=group) == 0
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        create_topic(client, "t")
        assert client.committed(groups[-1]) == {}
        assert client.commit(7, group=groups[-1]) == 0
        until(lambda: not thread.look(removing), "the deletions to be stored")
        assert client.committed(groups[-1]) == {("t", 0): (7, "")}
    with BrokerThread(data_dir) as thread, connect(thread) as client:
        assert client.committed(groups[-1]) == {("t", 0): (7, "")}
        assert client.committed(groups[0]) == {}


def test_a_broker_that_was_stopped_expires_no_member(process: BrokerProcess) -> None:
    with connect(process) as client:
        member_id, generation = client.enter(session_ms=1200)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2.5)  # the broker is stopped meanwhile
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: client.heartbeat(member_id, generation) == 0, "the broker to go on", seconds=0.3)


def test_a_session_that_is_over_is_over_for_the_next_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This does not depend on the coordinator's periodic tick, which does not run here."""
    monkeypatch.setattr(group_coordinator, "TICK_SECONDS", 3600.0)
    monkeypatch.setattr(group_coordinator, "STALL_SECONDS", 3600.0)
    with BrokerThread(tmp_path / "data", {"group.min.session.timeout.ms": "100"}) as thread, connect(thread) as client:
        for group in ("described", "deleted", "beating"):
            member_id, generation = client.enter(group, session_ms=300)
        assert client.delete("deleted") == ErrorCode.NON_EMPTY_GROUP
        time.sleep(0.35)
        (found,) = client.ask(DescribeGroupsRequest(groups=["described"]), 5).groups
        assert (found.group_state, found.members) == ("Empty", [])
        assert client.delete("deleted") == ErrorCode.NONE
        assert client.heartbeat(member_id, generation, "beating") == ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_without_members_cost_nothing(thread: BrokerThread) -> None:
    with connect(thread) as client:
        for number in range(50):
            client.commit(1, group=f"unmanaged-{number}")
        member_id, _ = client.enter()
        client.leave(member_id)
        until(lambda: not thread.look(scheduled_ticks), "nothing to be ticked")


def test_a_commit_of_many_rows_commits_the_valid_ones(thread: BrokerThread) -> None:
    """Enough rows to be decoded in a thread. Most are of partitions that do not exist, some are repeated."""
    with connect(thread) as client:
        rows = [OffsetCommitRequestPartition(partition_index=n, committed_offset=n + 5) for n in range(10_000)]
        rows.append(OffsetCommitRequestPartition(partition_index=0, committed_offset=77))
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=rows)])
        (topic,) = client.ask(request, 8).topics
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [row.error_code for row in topic.partitions] == [0, *[unknown] * 9999, 0]
        assert client.committed() == {("t", 0): (77, "")}


def test_offsets_that_are_requested_twice_are_returned_once(thread: BrokerThread) -> None:
    with connect(thread) as client:
        client.commit(7)
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0, 5] * 10_000)
        group = OffsetFetchRequestGroup(group_id="g", topics=[topic, topic])
        (answer,) = client.ask(OffsetFetchRequest(groups=[group, group]), 8).groups
        (found,) = answer.topics
        assert [(row.partition_index, row.committed_offset) for row in found.partitions] == [(0, 7), (5, -1)]


def test_a_damaged_offsets_log_is_an_error_and_not_an_older_offset(process: BrokerProcess) -> None:
    with connect(process) as client:
        for offset in range(3):
            assert client.commit(offset) == 0
    process.stop()
    (log,) = (process.data_dir / f"__consumer_offsets-{partition_of('g', 50)}").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-16] ^= 0x40  # inside the last offset, where only the CRC can detect it
    log.write_bytes(data)
    process.start()
    with GroupClient(process.port) as client:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        until(lambda: "cannot load" in process.stderr(), "the coordinator to meet the damage")
        (answer,) = client.ask(request, 8).groups
        assert (answer.error_code, answer.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        assert client.commit(9) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert client.commit(9, group="other") == 0
    process.forget_stderr()  # the traceback of the damage is expected


def test_a_group_lives_through_all_of_its_requests(thread: BrokerThread) -> None:
    with connect(thread) as client:
        member_id, generation = client.enter()
        assert client.commit(7, member_id, generation) == 0
        assert client.commit(8) == ErrorCode.UNKNOWN_MEMBER_ID
        assert client.delete() == ErrorCode.NON_EMPTY_GROUP
        client.leave(member_id)
        assert client.commit(8) == 0
        assert client.committed() == {("t", 0): (8, "")}
        assert client.delete() == 0
        assert client.delete() == ErrorCode.GROUP_ID_NOT_FOUND
        assert client.enter()[1] == 1


def test_offsets_may_be_kept_without_a_group_name(thread: BrokerThread) -> None:
    with connect(thread) as client:
        assert client.commit(5, group="") == 0
        assert client.committed("") == {("t", 0): (5, "")}


def test_requests_that_are_refused_leave_no_group_behind(thread: BrokerThread) -> None:
    with connect(thread) as client:
        assert client.commit(1, topic="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.commit(1, "stranger", 3) == ErrorCode.ILLEGAL_GENERATION
        assert client.heartbeat("stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        request = JoinGroupRequest(
            group_id="g", member_id="", session_timeout_ms=6000, rebalance_timeout_ms=1, protocol_type="", protocols=[]
        )
        assert client.ask(request, 7).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert client.groups() == set()


def test_a_member_has_a_bounded_number_of_protocols(thread: BrokerThread) -> None:
    """Each join compares those of all members."""

    def join(count: int) -> int:
        protocols = [JoinGroupRequestProtocol(name=f"assignor-{number}", metadata=b"") for number in range(count)]
        request = JoinGroupRequest(
            group_id="g",
            member_id="",
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            protocol_type="other",
            protocols=protocols,
        )
        error_code: int = client.ask(request, 3).error_code
        return error_code

    with connect(thread) as client:
        assert join(MAX_PROTOCOLS + 1) == ErrorCode.INVALID_REQUEST
        assert client.groups() == set()
        assert join(MAX_PROTOCOLS) == ErrorCode.NONE


def test_the_offsets_of_a_deleted_topic_are_forgotten(thread: BrokerThread) -> None:
    with connect(thread) as client:
        assert client.commit(7) == 0
        assert client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 4).responses[0].error_code == 0
        until(lambda: client.committed() == {}, "the offsets to be forgotten")


def test_expired_offsets_and_groups_are_deleted(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker, connect(broker) as client:
        assert client.commit(7) == 0
        assert client.commit(7, group="young") == 0
        old = [(TopicPartition("t", 0), CommittedOffset(7, -1, "", 0))]
        broker.look(lambda inside: inside.coordinator.shard("g")._groups.commit("g", old))
        broker.run(broker.broker.coordinator.expire_offsets())
        assert client.groups() == {"young"}
    with BrokerThread(tmp_path / "data") as broker, connect(broker) as client:
        assert client.groups() == {"young"}
        assert client.committed() == {}


MANY = [TopicPartition("t", partition) for partition in range(60_000)]  # their tombstones are larger than a batch


def commit_many(broker: BrokerThread, timestamp_ms: int) -> None:
    """Commit so many offsets of `g`. They are in memory only."""
    offsets = [(name, CommittedOffset(7, -1, "", timestamp_ms)) for name in MANY]
    broker.look(lambda inside: inside.coordinator.shard("g")._groups.commit("g", offsets))


def tombstone_count(broker: BrokerThread) -> int:
    return broker.look(lambda inside: replica_of(inside, "g").log.log_end_offset)


def test_many_offsets_expire_with_few_looks_at_the_open_transactions(
    thread: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_group = PendingOffsets.of_group
    looks: list[str] = []

    def counted(self: PendingOffsets, group_id: str) -> set[TopicPartition]:
        looks.append(group_id)
        return of_group(self, group_id)

    monkeypatch.setattr(PendingOffsets, "of_group", counted)
    with connect(thread) as client:
        commit_many(thread, 0)
        thread.run(thread.broker.coordinator.expire_offsets())
        assert client.groups() == set()
        assert tombstone_count(thread) == len(MANY) + 1
        assert thread.look(lambda broker: broker.coordinator.failures) == 0
        assert len(looks) < 100


def test_a_group_with_many_offsets_is_deleted(thread: BrokerThread) -> None:
    with connect(thread) as client:
        commit_many(thread, 0)
        assert client.delete() == 0
        assert client.groups() == set()
        assert tombstone_count(thread) == len(MANY) + 1


def test_many_offsets_of_a_deleted_topic_are_forgotten(thread: BrokerThread) -> None:
    with connect(thread) as client:
        commit_many(thread, 0)
        assert client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 4).responses[0].error_code == 0
        until(lambda: client.committed() == {}, "the offsets to be forgotten")
        until(lambda: not thread.look(removing), "the tombstones")
        assert tombstone_count(thread) == len(MANY)
        assert thread.look(lambda broker: broker.coordinator.failures) == 0


def test_an_offset_that_is_committed_while_others_expire_stays(
    thread: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of them, when the first batch of tombstones is stored."""
    monkeypatch.setattr(offset_removal, "BATCH_BYTES", 600)
    store = GroupLog.store

    async def store_and_commit(self: GroupLog, group_id: str, records: Any, **options: Any) -> None:
        monkeypatch.setattr(GroupLog, "store", store)
        await store(self, group_id, records, **options)
        young = CommittedOffset(9, -1, "", thread.broker.clock.now_ms())
        await thread.broker.coordinator.shard("g").commit_offsets("g", MemberId("", None, -1), {MANY[9]: young})

    with connect(thread) as client:
        old = [(name, CommittedOffset(7, -1, "", 0)) for name in MANY[:10]]
        thread.look(lambda inside: inside.coordinator.shard("g")._groups.commit("g", old))
        monkeypatch.setattr(GroupLog, "store", store_and_commit)
        thread.run(thread.broker.coordinator.expire_offsets())
        assert client.committed() == {("t", 9): (9, "")}


def test_a_note_that_is_too_long_is_refused(thread: BrokerThread) -> None:
    with connect(thread) as client:
        assert client.commit(1, note="x" * 4096) == 0
        assert client.commit(2, note="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert client.committed()["t", 0][0] == 1


@pytest.mark.parametrize(("group", "partition"), [("g", 3), ("console-consumer-1", 24), ("grüße", 23), ("", 0)])
def test_a_group_belongs_to_the_partition_that_java_would_give_it(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition
