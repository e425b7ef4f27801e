"""All known attacks that blocked, or could block, the event loop: over real sockets, limited in count and time.

An attack prepares a stage and returns its strike, a function. The broker restarts in between. A strike returns figures
of its own.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import frames
from benchmarks.login_attack import wrong_logins
from benchmarks.servers import broker
from benchmarks.stage import Stage, frame_of, produce_to
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from skylog.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from skylog.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from skylog.records import Record, build_batch
from skylog.records.compression import Codec

Figures = dict[str, Any]
Strike = Callable[[], Figures]
Attack = Callable[[Stage], Strike]

TOPIC = "target"
GROUP = "g"
SEGMENT_BYTES = 343_000_000
BOMB_BYTES = 15_000_000
BOMBS = 200
IDLE_S = 4.0


def nothing(stage: Stage) -> Strike:
    """Do nothing: the pauses of an idle broker on this machine."""
    return lambda: _wait(2.0)


def _wait(seconds: float) -> Figures:
    time.sleep(seconds)
    return {}


# -- damaged and missing files


def flipped_bit(stage: Stage) -> Strike:
    """Flip one bit in the second batch of a large segment, then read the whole log."""
    batches = _fill_segment(stage)
    path = stage.log_file(TOPIC)
    size_bytes = len(frames.record_batch(10))
    with open(path, "r+b") as file:
        file.seek(size_bytes + 200)
        byte = file.read(1)[0]
        file.seek(size_bytes + 200)
        file.write(bytes([byte ^ 1]))
    offsets = [0, 10, 15, 20, *range(0, batches * 10, batches * 2), batches * 10 - 1]
    return lambda: _read(stage, offsets)


def missing_index(stage: Stage) -> Strike:
    """Delete the index of a large segment before the first read after a start."""
    batches = _fill_segment(stage)
    for suffix in (".index", ".timeindex"):
        stage.log_file(TOPIC, suffix).unlink(missing_ok=True)
    return lambda: _read(stage, [batches * 5])


def _fill_segment(stage: Stage) -> int:
    """Write a closed segment of many small batches and another one after it, and stop the broker."""
    size_bytes = SEGMENT_BYTES // 5 if stage.quick else SEGMENT_BYTES
    batch = frames.record_batch(10)
    stage.create_topic(TOPIC, segment_bytes=str(size_bytes))
    count = size_bytes // len(batch)
    stage.fill(TOPIC, batch, count + 10)
    stage.stop()
    return count


def _read(stage: Stage, offsets: list[int]) -> Figures:
    with stage.line() as line:
        for offset in offsets:
            line.throw(
                frame_of(_fetch([FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 << 20)]), 12)
            )
    return {}


def _fetch(rows: list[FetchPartition], max_wait_ms: int = 0) -> FetchRequest:
    topics = [FetchTopic(topic=TOPIC, partitions=rows)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=50 << 20, session_epoch=-1, topics=topics)


# -- names and rows in great number


def metadata_of_one_topic(stage: Stage) -> Strike:
    stage.create_topic(TOPIC, 100)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)] * _count(stage, 20_000))
    return _throw(stage, frame_of(request, 12))


def describe_groups(stage: Stage) -> Strike:
    """Describe one group of 0.9 MB many times in one request."""
    with stage.line() as line:
        line.ask(FindCoordinatorRequest(key=GROUP), 2)
        protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(900_000))
        join = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = line.ask(join, 3)
        assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"x")
        line.ask(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[assignment],
            ),
            3,
        )
    return _throw(stage, frame_of(DescribeGroupsRequest(groups=[GROUP] * _count(stage, 2000)), 5))


def describe_configs(stage: Stage) -> Strike:
    stage.create_topic(TOPIC)
    resource = DescribeConfigsResource(resource_type=2, resource_name=TOPIC)
    request = DescribeConfigsRequest(resources=[resource] * _count(stage, 10_000), include_synonyms=True)
    return _throw(stage, frame_of(request, 4))


def fetch_one_partition(stage: Stage) -> Strike:
    """Name one partition many times, in a request that has to wait."""
    stage.create_topic(TOPIC)
    rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)] * _count(stage, 100_000)
    return _throw(stage, frame_of(_fetch(rows, max_wait_ms=500), 12))


def fetch_unknown_partitions(stage: Stage) -> Strike:
    stage.create_topic(TOPIC)
    rows = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(_count(stage, 100_000))
    ]
    return _throw(stage, frame_of(_fetch(rows), 12))


def fetch_all_partitions(stage: Stage) -> Strike:
    """Fetch every partition of a wide topic, with a record in each, in a request that waits for more data."""
    count = _count(stage, 5000)
    stage.create_topic(TOPIC, count)
    batch = frames.record_batch(1, 50)
    with stage.line() as line:
        for first in range(0, count, 1000):
            line.throw(frame_of(produce_to(TOPIC, [batch] * min(1000, count - first), first=first), 9))
    rows = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(count)]
    request = _fetch(rows, max_wait_ms=300)
    request.min_bytes = 1 << 30
    return _throw(stage, frame_of(request, 12))


def offset_commit(stage: Stage) -> Strike:
    stage.create_topic(TOPIC, 100)
    with stage.line() as line:
        line.ask(FindCoordinatorRequest(key=GROUP), 2)
    rows = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=0)
        for number in range(_count(stage, 100_000))
    ]
    return _throw(stage, frame_of(_commit(GROUP, rows), 8))


def _commit(group: str, rows: list[OffsetCommitRequestPartition]) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=rows)])


def offset_fetch(stage: Stage) -> Strike:
    with stage.line() as line:
        line.ask(FindCoordinatorRequest(key=GROUP), 2)
    topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(_count(stage, 100_000))))
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    return _throw(stage, frame_of(OffsetFetchRequest(groups=[group]), 8))


def _count(stage: Stage, count: int) -> int:
    return count // 10 if stage.quick else count


def _throw(stage: Stage, frame: bytes) -> Strike:
    def strike() -> Figures:
        with stage.line() as line:
            return {"answer_mb": line.throw(frame) / 1e6}

    return strike


# -- large answers


def slow_reader(stage: Stage) -> Strike:
    """Read slowly a response of more than 100 MB, which consists of the metadata of a group's commits."""
    stage.settings["offset.metadata.max.bytes"] = "32000"
    partitions = _count(stage, 3500)
    stage.create_topic(TOPIC, partitions)
    note = "n" * 32_000
    with stage.line() as line:
        line.ask(FindCoordinatorRequest(key=GROUP), 2)
        for first in range(0, partitions, 30):
            rows = [
                OffsetCommitRequestPartition(partition_index=number, committed_offset=0, committed_metadata=note)
                for number in range(first, min(first + 30, partitions))
            ]
            line.throw(frame_of(_commit(GROUP, rows), 8))
    frame = frame_of(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]), 8)

    def strike() -> Figures:
        _when_loaded(stage)
        with stage.line(receive_buffer_bytes=65536) as line:
            line.sock.sendall(frame)
            return {"answer_mb": line.drop_answer(lambda: time.sleep(0.0005)) / 1e6}

    return strike


def _when_loaded(stage: Stage) -> None:
    """Wait until the broker has loaded its groups after the start."""
    with stage.line() as line:
        while (
            line.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[])]), 8)
            .groups[0]
            .error_code
        ):
            time.sleep(0.05)


# -- batches that are more than they seem


def one_offset_by_time(stage: Stage) -> Strike:
    return _offsets_by_time(stage, 1)


def five_offsets_by_time(stage: Stage) -> Strike:
    return _offsets_by_time(stage, 5)


def _offsets_by_time(stage: Stage, rows: int) -> Strike:
    """Request the offset for the time of the last record in a stored batch of a million."""
    count = _count(stage, 1_000_000)
    batch = bytes(build_batch((Record(b"", None, 1000 + number) for number in range(count)), codec=Codec.ZSTD))
    stage.create_topic(TOPIC, rows, max_message_bytes="100000000")
    with stage.line() as line:
        (topic,) = line.ask(produce_to(TOPIC, [batch] * rows), 9).responses
    if any(row.error_code for row in topic.partition_responses):
        raise RuntimeError(f"the batch was refused: {topic}")
    wanted = [ListOffsetsPartition(partition_index=number, timestamp=1000 + count - 1) for number in range(rows)]
    return _throw(stage, frame_of(ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=wanted)]), 7))


def bombs_to_a_compacted_topic(stage: Stage) -> Strike:
    return _bombs(stage, cleanup_policy="compact")


def bombs_to_another_codec(stage: Stage) -> Strike:
    return _bombs(stage, compression_type="lz4")


def _bombs(stage: Stage, **configs: str) -> Strike:
    """Build one request with a batch of a few hundred bytes for each partition; each decompresses to 15 MB."""
    stage.create_topic(TOPIC, BOMBS, **configs)
    bomb = bytes(build_batch([Record(bytes(BOMB_BYTES), b"k", 1000)], codec=Codec.ZSTD))
    frame = frame_of(produce_to(TOPIC, [bomb] * _count(stage, BOMBS)), 9)
    strike = _throw(stage, frame)
    return lambda: strike() | {"bomb_bytes": len(bomb)}


# -- many of something


def partitions(stage: Stage) -> Strike:
    """Create many partitions, then delete them."""
    count = _count(stage, 10_000)
    delete = frame_of(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=60_000), 6)

    def strike() -> Figures:
        began = time.perf_counter()
        stage.create_topic(TOPIC, count)
        created = time.perf_counter()
        with stage.line() as line:
            line.throw(delete)
        return {"create_s": created - began, "delete_s": time.perf_counter() - created}

    return strike


def idle_groups(stage: Stage) -> Strike:
    """Create groups that have committed and left. Their CPU time is measured on a broker without other clients."""
    stage.create_topic(TOPIC)
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    with stage.line() as line:
        line.ask(FindCoordinatorRequest(key=GROUP), 2)
        line.throw_all(frame_of(_commit(f"g{number}", [row]), 8) for number in range(_count(stage, 30_000)))
    stage.stop()
    with broker(stage.data_dir, core=None) as alone:
        time.sleep(2 * IDLE_S)  # it reads the groups back first
        before = alone.cpu_seconds()
        time.sleep(IDLE_S)
        share = (alone.cpu_seconds() - before) / IDLE_S
    return lambda: _wait(IDLE_S) | {"cpu_percent": share * 100}


def producer_ids(stage: Stage) -> Strike:
    stage.create_topic(TOPIC)
    count = _count(stage, 100_000)

    def requests() -> Iterator[bytes]:
        for number in range(count):
            batch = build_batch([Record(b"v", None, 1000)], producer_id=number, producer_epoch=0, base_sequence=0)
            yield frame_of(produce_to(TOPIC, [bytes(batch)]), 9)

    def strike() -> Figures:
        before = stage.server.rss_bytes()
        with stage.line() as line:
            line.throw_all(requests())
        return {"memory_mb": (stage.server.rss_bytes() - before) / 1e6}

    return strike


def log_flood(stage: Stage) -> Strike:
    """Send requests of an unsupported version, each of which closes its connection."""
    frame = struct.pack(">ihhih", 12, 1, 18, 1, 2) + b"xx"
    seconds = 1.0 if stage.quick else 5.0

    def strike() -> Figures:
        before, sent = stage.log_lines(), 0
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            with stage.line() as line:
                line.sock.sendall(frame)
                line.sock.recv(1)
            sent += 1
        return {"requests": sent, "log_lines": stage.log_lines() - before}

    return strike


ATTACKS: dict[str, Attack] = {
    "nothing": nothing,
    "a flipped bit in a segment of 343 MB": flipped_bit,
    "a missing index of a segment of 343 MB": missing_index,
    "Metadata: a topic of 100 partitions × 20,000": metadata_of_one_topic,
    "DescribeGroups: a group of 0.9 MB × 2,000": describe_groups,
    "DescribeConfigs: a topic × 10,000": describe_configs,
    "Fetch: a partition × 100,000, parked": fetch_one_partition,
    "Fetch: 100,000 unknown partitions": fetch_unknown_partitions,
    "Fetch: 5,000 partitions, parked": fetch_all_partitions,
    "OffsetCommit: 100,000 rows": offset_commit,
    "OffsetFetch: 100,000 rows": offset_fetch,
    "an answer of 112 MB to a slow reader": slow_reader,
    "ListOffsets by time in a batch of 1,000,000": one_offset_by_time,
    "the same, five rows": five_offsets_by_time,
    "200 bombs of 15 MB to a compacted topic": bombs_to_a_compacted_topic,
    "200 bombs of 15 MB to another codec": bombs_to_another_codec,
    "10,000 partitions created and deleted": partitions,
    "30,000 idle groups": idle_groups,
    "100,000 producer ids": producer_ids,
    "a flood of refused requests": log_flood,
    "1,000 wrong logins a second": wrong_logins,
}
