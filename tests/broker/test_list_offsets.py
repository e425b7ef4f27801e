"""ListOffsets and OffsetForLeaderEpoch: offsets by time and by epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from skylog.records import Codec, Record, build_batch

from .conftest import MakeTopic, create_topic
from .process import BrokerProcess
from .raw import RawClient, batch_of

VERSIONS = range(1, 10)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def stamped(*times: int, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([Record(b"v", b"k", time) for time in times], codec=codec)


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_special_times_have_their_answers(
    client: RawClient, make_topic: MakeTopic, version: int, isolation: int
) -> None:
    topic = make_topic()
    client.produce(topic, stamped(1000, 5000, 3000))
    client.produce(topic, stamped(2000))

    def ask(timestamp: int) -> tuple[int, int, int]:
        row = client.list_offset(topic, timestamp, version=version, isolation=isolation)
        return row.error_code, row.timestamp, row.offset

    assert ask(LATEST) == (0, -1, 4)
    assert ask(EARLIEST) == (0, -1, 0)
    assert ask(MAX_TIMESTAMP) == (0, 5000, 1)
    assert ask(EARLIEST_LOCAL) == (0, -1, 0)
    assert ask(LATEST_TIERED) == (0, -1, -1)
    assert ask(-6)[0] != 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_log_has_a_start_and_an_end_but_no_times(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    found = [client.list_offset(topic, time, version=version) for time in (LATEST, EARLIEST, MAX_TIMESTAMP, 0)]
    assert [(row.error_code, row.timestamp, row.offset) for row in found] == [
        (0, -1, 0),
        (0, -1, 0),
        (0, -1, -1),
        (0, -1, -1),
    ]


@pytest.mark.parametrize("codec", Codec)
def test_a_time_is_found_inside_its_batch(client: RawClient, make_topic: MakeTopic, codec: Codec) -> None:
    topic = make_topic()
    client.produce(topic, stamped(1000, 1010, 1020, codec=codec))
    client.produce(topic, stamped(2000, 2010, 2005, codec=codec))
    client.produce(topic, stamped(1500, codec=codec))
    wanted = {
        0: (1000, 0),
        1000: (1000, 0),
        1001: (1010, 1),
        1020: (1020, 2),
        1021: (2000, 3),
        2001: (2010, 4),
        2010: (2010, 4),
    }
    for time, expected in wanted.items():
        row = client.list_offset(topic, time)
        assert (row.timestamp, row.offset) == expected
    assert client.list_offset(topic, 2011).offset == -1


def test_a_time_is_found_across_many_segments(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(segment_bytes="400", index_interval_bytes="100")
    for n in range(60):
        client.produce(topic, stamped(1000 + 10 * n, 1005 + 10 * n))
    for time in range(1000, 1600, 37):
        expected = -(-(time - 1000) // 5)
        assert client.list_offset(topic, time).offset == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_partition_is_an_error(client: RawClient, make_topic: MakeTopic, version: int) -> None:
    for topic, partition in (("not-there", 0), (make_topic(), 1), (make_topic(), -1)):
        row = client.list_offset(topic, LATEST, partition=partition, version=version)
        assert (row.error_code, row.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def ask_epoch(client: RawClient, version: int, epoch: int, current: int = -1, topic: str = "t") -> EpochEndOffset:
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[row])])
    found: EpochEndOffset = client.ask(request, version).topics[0].partitions[0]
    return found


def test_epochs_have_end_offsets_and_fence_old_clients(tmp_path: Path) -> None:
    """Epoch 0 has three records, epoch 1 none, epoch 2 two."""
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t")
            client.produce("t", batch_of(b"a", b"b", b"c"))
        for _ in range(2):
            broker.kill()
            broker.start()
        with RawClient(broker.port) as client:
            client.produce("t", batch_of(b"d", b"e"))
            for version in VERSIONS[3:]:
                fenced = client.list_offset("t", LATEST, epoch=1, version=version)
                assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
                ahead = client.list_offset("t", LATEST, epoch=3, version=version)
                assert ahead.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
                assert client.list_offset("t", LATEST, epoch=2, version=version).leader_epoch == 2
                assert client.list_offset("t", EARLIEST, epoch=-1, version=version).leader_epoch == 0
            for version in range(2, 5):
                found = [ask_epoch(client, version, epoch) for epoch in (0, 1, 2)]
                assert [(row.error_code, row.leader_epoch, row.end_offset) for row in found] == [
                    (0, 0, 3),
                    (0, 0, 3),
                    (0, 2, 5),
                ]
                unknown = ask_epoch(client, version, 9)
                assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)
                assert ask_epoch(client, version, 0, current=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
                assert ask_epoch(client, version, 0, current=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
                missing = ask_epoch(client, version, 0, topic="not-there")
                assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_reader_of_an_empty_partition_is_still_right_after_a_kill(tmp_path: Path) -> None:
    """It is at offset 0 with epoch 0, of which there is no record; the leader is in epoch 1 by then."""
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t")
            start = client.list_offset("t", EARLIEST)
            assert (start.offset, start.leader_epoch) == (0, 0)
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            for wrote in (False, True):
                if wrote:
                    client.produce("t", batch_of(b"a"))
                for version in range(2, 5):
                    found = ask_epoch(client, version, 0)
                    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 0)
                    assert ask_epoch(client, version, 2).end_offset == -1
