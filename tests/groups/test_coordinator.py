"""Groups through the broker's door: what is acknowledged lies in `__consumer_offsets` and is there after a crash."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.broker import coordinator
from skylog.broker.coordinator import partition_of
from skylog.errors import ErrorCode
from skylog.groups import CommittedOffset
from skylog.model import TopicPartition
from skylog.protocol.delete_topics import DeleteTopicsRequest
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.join_group import JoinGroupRequest
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.broker.conftest import create_topic
from tests.broker.process import BrokerProcess, BrokerThread, until

from .client import GroupClient

NOTE = "grüße"


def connect(broker: BrokerProcess | BrokerThread) -> GroupClient:
    client = GroupClient(broker.port)
    if "t" not in {topic.name for topic in client.metadata().topics}:
        create_topic(client, "t")
    client.find()
    return client


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


def test_what_was_deleted_stays_deleted_after_a_kill(process: BrokerProcess) -> None:
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


def test_a_broker_that_stood_still_throws_nobody_out(process: BrokerProcess) -> None:
    with connect(process) as client:
        member_id, generation = client.enter(session_ms=1200)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2.5)  # the thing itself: time in which nothing runs
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: client.heartbeat(member_id, generation) == 0, "the broker to go on", seconds=0.3)


def test_a_session_that_is_over_is_over_for_the_next_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the coordinator's own clock has ticked meanwhile: here it does not."""
    monkeypatch.setattr(coordinator, "TICK_SECONDS", 3600.0)
    monkeypatch.setattr(coordinator, "STALL_SECONDS", 3600.0)
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
        until(lambda: not thread.look(lambda broker: len(broker.coordinator._timers)), "nothing to be ticked")


def test_a_commit_of_many_rows_commits_what_there_is(thread: BrokerThread) -> None:
    """So many that it is decoded in a thread; most are of partitions that do not exist, some are named twice."""
    with connect(thread) as client:
        rows = [OffsetCommitRequestPartition(partition_index=n, committed_offset=n + 5) for n in range(10_000)]
        rows.append(OffsetCommitRequestPartition(partition_index=0, committed_offset=77))
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=rows)])
        (topic,) = client.ask(request, 8).topics
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [row.error_code for row in topic.partitions] == [0, *[unknown] * 9999, 0]
        assert client.committed() == {("t", 0): (77, "")}


def test_offsets_that_are_asked_for_twice_are_answered_once(thread: BrokerThread) -> None:
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
    data[-16] ^= 0x40  # inside the last offset, where nothing but the CRC can tell
    log.write_bytes(data)
    process.start()
    with GroupClient(process.port) as client:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        until(lambda: "cannot be loaded" in process.stderr(), "the coordinator to meet the damage")
        (answer,) = client.ask(request, 8).groups
        assert (answer.error_code, answer.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        assert client.commit(9) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert client.commit(9, group="other") == 0
    process.forget_stderr()  # the traceback of the damage is wanted


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


def test_the_offsets_of_a_deleted_topic_are_forgotten(thread: BrokerThread) -> None:
    with connect(thread) as client:
        assert client.commit(7) == 0
        assert client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 4).responses[0].error_code == 0
        until(lambda: client.committed() == {}, "the offsets to be forgotten")


def test_expired_offsets_and_groups_are_forgotten_for_good(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker, connect(broker) as client:
        assert client.commit(7) == 0
        assert client.commit(7, group="young") == 0
        old = [(TopicPartition("t", 0), CommittedOffset(7, -1, "", 0))]
        broker.look(lambda inside: inside.coordinator.groups.commit("g", old))
        broker.run(broker.broker.coordinator.expire_offsets())
        assert client.groups() == {"young"}
    with BrokerThread(tmp_path / "data") as broker, connect(broker) as client:
        assert client.groups() == {"young"}
        assert client.committed() == {}


def test_a_note_that_is_too_long_is_refused(thread: BrokerThread) -> None:
    with connect(thread) as client:
        assert client.commit(1, note="x" * 4096) == 0
        assert client.commit(2, note="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert client.committed()["t", 0][0] == 1


@pytest.mark.parametrize(("group", "partition"), [("g", 3), ("console-consumer-1", 24), ("grüße", 23), ("", 0)])
def test_a_group_belongs_to_the_partition_that_java_would_give_it(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition
