"""Long work runs in threads, not on the event loop: opening batches, searching in them, checking files."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skylog.broker.held_frame import LARGE_FRAME_BYTES
from skylog.broker.metrics.health import Health
from skylog.errors import ErrorCode
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from skylog.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.records import Codec, Record, build_batch, stamp_offset
from skylog.storage import producer_recovery
from skylog.storage.admission import Admission
from skylog.storage.segment import Segment
from skylog.storage.soundness import PartCheck
from skylog.storage.time_search import TimeSearch
from skylog.storage.truncation import ProducerReplay

from .conftest import create_topic
from .loop_cluster import LoopCluster, soon
from .process import BrokerThread, until
from .raw import RawClient, batch_of, fetch_request, produce_request, values_in

LOOP = "broker"


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(thread: BrokerThread) -> Iterator[RawClient]:
    with RawClient(thread.port) as connection:
        yield connection


Watch = Callable[[type, str], list[str]]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Notes the names of the threads in which a method runs."""

    def start(owner: type, name: str) -> list[str]:
        threads: list[str] = []
        method = getattr(owner, name)

        def noting(*arguments: Any, **options: Any) -> Any:
            threads.append(threading.current_thread().name)
            return method(*arguments, **options)

        monkeypatch.setattr(owner, name, noting)
        return threads

    return start


def zeros(count: int, codec: Codec = Codec.ZSTD) -> bytearray:
    return build_batch([Record(b"\0" * 1000, b"k", 1000 + number) for number in range(count)], codec=codec)


@pytest.mark.parametrize("configs", [{"cleanup_policy": "compact"}, {"compression_type": "gzip"}])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_compressed_batches_are_opened_in_a_thread_and_keep_their_order(
    client: RawClient, watch: Watch, configs: dict[str, str], acks: int
) -> None:
    create_topic(client, "t", 1, configs)
    threads = watch(Admission, "_open")
    for number in range(20):  # without waiting for answers
        batch = zeros(number % 3 + 1) if number % 2 else batch_of(b"%d" % number)
        client.send(produce_request("t", batch, acks=acks), 9)
    if acks:
        answers = [client.receive().responses[0].partition_responses[0] for _ in range(20)]
        assert [answer.error_code for answer in answers] == [0] * 20
        offsets = [answer.base_offset for answer in answers]
        assert offsets == sorted(offsets)
    found = values_in(client.fetch("t", 0).records)
    assert [value for _, value in found if value and value[0] != 0] == [b"%d" % n for n in range(0, 20, 2)]
    assert len(found) == 10 + sum(number % 3 + 1 for number in range(1, 20, 2))
    assert len([name for name in threads if name != LOOP]) >= 10


def test_small_plain_batches_of_a_compacted_topic_are_stored_at_once(client: RawClient, watch: Watch) -> None:
    create_topic(client, "t", 1, {"cleanup_policy": "compact"})
    threads = watch(Admission, "_open")
    assert client.produce("t", batch_of(b"a")).error_code == 0
    assert threads == [LOOP]


def test_many_batches_of_a_request_are_opened_in_a_thread(client: RawClient, watch: Watch) -> None:
    create_topic(client, "t", 50, {"cleanup_policy": "compact"})
    threads = watch(Admission, "_open")
    batch = bytes(build_batch([Record(b"v" * 10, b"k") for _ in range(50)]))
    rows = [PartitionProduceData(index=index, records=batch) for index in range(50)]
    topic = TopicProduceData(name="t", partition_data=rows)
    (answer,) = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9).responses
    assert [(row.index, row.error_code, row.base_offset) for row in answer.partition_responses] == [
        (index, 0, 0) for index in range(50)
    ]
    assert threads.count(LOOP) * len(batch) <= 16 * 1024
    assert len(threads) == 50


def test_a_refused_row_does_not_keep_the_others_of_a_request_from_being_stored(client: RawClient) -> None:
    create_topic(client, "t", 3, {"cleanup_policy": "compact"})
    keyless = build_batch([Record(b"v")], codec=Codec.GZIP)
    batches = [zeros(2), keyless, zeros(3)]
    rows = [PartitionProduceData(index=index, records=bytes(batch)) for index, batch in enumerate(batches)]
    topic = TopicProduceData(name="t", partition_data=rows)
    (answer,) = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9).responses
    codes = [row.error_code for row in answer.partition_responses]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    assert [client.end_offset("t", partition) for partition in range(3)] == [2, 0, 3]


def test_a_client_that_leaves_does_not_take_back_what_it_has_sent(thread: BrokerThread, client: RawClient) -> None:
    create_topic(client, "t", 1, {"cleanup_policy": "compact"})
    with RawClient(thread.port) as leaving:
        for _ in range(3):
            leaving.send(produce_request("t", zeros(10), acks=0), 9)
        leaving.send(produce_request("t", zeros(10), acks=-1), 9)
        leaving.receive()
    assert client.end_offset("t") == 40


def test_a_batch_that_recompression_makes_too_large_is_refused(client: RawClient) -> None:
    create_topic(client, "t", 1, {"compression_type": "uncompressed", "max_message_bytes": "10000"})
    batch = zeros(50)
    assert len(batch) < 10_000
    assert client.produce("t", batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.end_offset("t") == 0
    assert client.produce("t", zeros(5)).error_code == 0


def test_records_are_looked_up_by_time_in_a_thread(client: RawClient, watch: Watch) -> None:
    create_topic(client, "t")
    client.produce("t", zeros(50))
    threads = watch(TimeSearch, "run")
    assert client.list_offset("t", 1020).offset == 20
    assert client.list_offset("t", -3).offset == 49
    assert len(threads) == 2
    assert LOOP not in threads


def test_a_partition_that_list_offsets_names_twice_is_answered_once_with_an_error(client: RawClient) -> None:
    create_topic(client, "t", 2)
    rows = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 1, 1)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=rows)])
    (topic,) = client.ask(request, 7).topics
    assert [(row.partition_index, row.error_code) for row in topic.partitions] == [
        (0, 0),
        (1, ErrorCode.INVALID_REQUEST),
    ]


def test_found_batches_are_checked_and_indexes_made_again_in_a_thread(tmp_path: Path, watch: Watch) -> None:
    data_dir = tmp_path / "again"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        create_topic(client, "t", 2, {"index_interval_bytes": "200"})
        for partition in (0, 1):
            for number in range(30):
                client.produce("t", batch_of(b"%d" % number), partition=partition)
    (index,) = (data_dir / "t-1").glob("*.index")
    index.write_bytes(b"\x5a" + index.read_bytes()[1:])
    checks, rebuilds = watch(PartCheck, "run"), watch(Segment, "rebuild_indexes")
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        for partition in (0, 1):
            found = values_in(client.fetch("t", 10, partition=partition).records)
            assert found == [(number, b"%d" % number) for number in range(10, 30)]
        assert (len(checks), len(rebuilds)) == (1, 1)
        assert LOOP not in (*checks, *rebuilds)
        # Waiting for new messages from there works as always.
        client.send(fetch_request("t", 30, max_wait_ms=10_000), 12)
        with RawClient(thread.port) as producer:
            producer.produce("t", batch_of(b"new"))
        assert values_in(client.receive().responses[0].partitions[0].records) == [(30, b"new")]


def a_batch_of_producer(sequence: int, epoch: int = 0) -> bytearray:
    batch = build_batch([Record(b"v", None, 1000)], producer_id=7, producer_epoch=0, base_sequence=sequence)
    stamp_offset(batch, sequence, epoch)
    return batch


def test_a_follower_that_truncates_a_long_segment_does_not_hold_the_loop(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It restores the producers at its new end from all batches of the segment, in a thread."""
    count = 2000
    replays = watch(ProducerReplay, "run")
    loop = threading.current_thread().name
    replay, replayed_on_the_loop = producer_recovery.replay, []

    def noting(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread().name == loop:
            replayed_on_the_loop.append(arguments)
        return replay(*arguments, **options)

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1, 2)
            await cluster.create("t", [1, 2])
            leader, follower = cluster.partition(1), cluster.partition(2)
            for sequence in range(count):
                leader.append(memoryview(a_batch_of_producer(sequence)), 0, 1)
            await soon(lambda: follower.high_watermark == count, "the follower")
            await cluster.membership(2).fetchers.stop()
            for sequence in range(count, count + 3):  # of a leader that is gone
                follower.log.append_as_follower(memoryview(a_batch_of_producer(sequence, epoch=3)), 3, 0)
            await cluster.change("t", leader_epoch=5)
            monkeypatch.setattr(producer_recovery, "replay", noting)
            await cluster.append(1, b"next", acks=1)
            cluster.membership(2).fetchers.start()
            await soon(lambda: cluster.values(2) == cluster.values(1), "the truncation")
            producer = follower.log.producers.find(7)
            assert producer is not None
            assert producer.last_sequence == count - 1

    asyncio.run(run())
    assert len(replays) == 1
    assert loop not in replays
    assert replayed_on_the_loop == []


def test_a_damaged_batch_is_a_health_problem_and_the_others_are_served(tmp_path: Path) -> None:
    data_dir = tmp_path / "again"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        create_topic(client, "t")
        sizes = [len(batch_of(b"%d" % number)) for number in range(10)]
        for number in range(10):
            client.produce("t", batch_of(b"%d" % number))
    (path,) = (data_dir / "t-0").glob("*.log")
    content = bytearray(path.read_bytes())
    content[sum(sizes[:4]) + 65] ^= 1
    path.write_bytes(content)
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        assert [offset for offset, _ in values_in(client.fetch("t", 0).records)] == [0, 1, 2, 3]
        assert client.fetch("t", 4).error_code == ErrorCode.CORRUPT_MESSAGE
        assert [offset for offset, _ in values_in(client.fetch("t", 5).records)] == [5, 6, 7, 8, 9]
        report = thread.run(Health(thread.broker).report())
        assert "t-0 is damaged: offsets 4 to 4" in report.problems


def test_the_earliest_offset_of_an_empty_partition_has_the_leader_epoch(client: RawClient) -> None:
    create_topic(client, "t")
    assert client.list_offset("t", -2).leader_epoch == 0


def test_a_large_fetch_whose_client_is_gone_at_once_gives_its_memory_back(thread: BrokerThread) -> None:
    """Request and reset are read in the same iteration of the event loop, before the response has begun."""
    rows = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=100) for number in range(3500)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic="t", partitions=rows)])
    with RawClient(thread.port) as encoder:
        frame = encoder.encode(request, 11)
    assert len(frame) > LARGE_FRAME_BYTES

    def ask_and_reset() -> None:
        with socket.create_connection(("127.0.0.1", thread.port)) as leaving:
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            leaving.sendall(frame)

    for _ in range(5):
        thread.look(lambda _: ask_and_reset())  # on the loop's own thread, which then finds both
    until(lambda: thread.look(lambda broker: not broker.listener.connections), "the connections to be closed")
    until(lambda: thread.look(lambda broker: broker.listener._budget.used_bytes) == 0, "the memory to be given back", 5)
