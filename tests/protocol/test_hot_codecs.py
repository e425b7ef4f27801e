"""The hand-written codecs of Produce and Fetch read and write the same as the declared ones, in every version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.errors import MalformedRequestError
from skylog.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from skylog.protocol.fetch_hot import FetchCall, PartitionAnswer, answer_tags, endpoint_tags, fetch_reply, read_fetch
from skylog.protocol.frames import response_frame
from skylog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from skylog.protocol.produce_hot import ProduceCall, produce_reply, read_produce

from .strategies import full_message, messages

PRODUCE_VERSIONS = range(ProduceRequest.versions.low, ProduceRequest.versions.high + 1)
FETCH_VERSIONS = range(FetchRequest.versions.low, FetchRequest.versions.high + 1)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=6) | st.sampled_from(["", "x" * 126, "x" * 127, "é" * 70])


def as_call(request: ProduceRequest) -> ProduceCall:
    topics: Any = [
        (topic.name, [(row.index, row.records) for row in topic.partition_data]) for topic in request.topic_data
    ]
    return ProduceCall(request.transactional_id, request.acks, request.timeout_ms, topics)


def with_bytes(call: ProduceCall) -> ProduceCall:
    topics: Any = [
        (name, [(index, None if records is None else bytes(records)) for index, records in rows])
        for name, rows in call.topics
    ]
    return call._replace(topics=topics)


def as_fetch_call(request: FetchRequest, version: int) -> FetchCall:
    topics: Any = [
        (
            topic.topic_id if version >= 13 else topic.topic,
            [
                (
                    row.partition,
                    row.current_leader_epoch,
                    row.fetch_offset,
                    row.partition_max_bytes,
                    row.last_fetched_epoch,
                    row.log_start_offset,
                )
                for row in rows
            ],
        )
        for topic in request.topics
        for rows in [topic.partitions]
    ]
    state = request.replica_state or ReplicaState()
    return FetchCall(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        topics,
        [
            (topic.topic_id if version >= 13 else topic.topic, list(topic.partitions))
            for topic in request.forgotten_topics_data
        ]
        or (),
        request.replica_id if version < 15 else state.replica_id,
        state.replica_epoch,
        request.rack_id,
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=30, deadline=None)
@given(data=st.data(), shift=st.integers(0, 3))
def test_a_produce_request_is_read_as_declared(version: int, data: st.DataObject, shift: int) -> None:
    request = data.draw(messages(ProduceRequest, version))
    frame = memoryview(bytearray(bytes(shift) + request.write(version)))
    assert with_bytes(read_produce(frame, shift, version)) == as_call(request)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=30, deadline=None)
@given(data=st.data(), shift=st.integers(0, 3))
def test_a_fetch_request_is_read_as_declared(version: int, data: st.DataObject, shift: int) -> None:
    request = data.draw(messages(FetchRequest, version))
    frame = memoryview(bytearray(bytes(shift) + request.write(version)))
    assert read_fetch(frame, shift, version) == as_fetch_call(request, version)


@pytest.mark.parametrize("version", [version for version in PRODUCE_VERSIONS if version in ProduceRequest.flexible])
def test_unknown_tags_of_a_produce_request_are_skipped(version: int) -> None:
    request = full_message(ProduceRequest, version)
    plain = request.write(version)
    assert plain.endswith(b"\0\0\0")  # the tags of the last partition, its topic and the request
    tagged = plain[:-3] + b"\x01\x63\x02hi" + b"\x01\x63\x00" + b"\x02\x07\x01a\x63\x01b"
    assert with_bytes(read_produce(memoryview(tagged), 0, version)) == as_call(request)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=30, deadline=None)
@given(
    stored=st.lists(st.tuples(names, st.lists(st.tuples(int32s, int64s, int64s, int64s), max_size=3)), max_size=3),
    correlation_id=int32s,
)
def test_a_produce_reply_is_written_as_declared(version: int, stored: Any, correlation_id: int) -> None:
    declared = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index, base_offset=offset, log_append_time_ms=time, log_start_offset=start
                    )
                    for index, offset, time, start in rows
                ],
            )
            for name, rows in stored
        ]
    )
    assert produce_reply(correlation_id, version, stored) == response_frame(correlation_id, declared, version)


answers = st.builds(
    PartitionAnswer,
    int32s,
    st.integers(-(2**15), 2**15 - 1),
    int64s,
    int64s,
    int64s,
    st.none() | st.sampled_from([b"r", b"records" * 20, b"x" * 126, b"x" * 127, b"x" * 20_000]),
    st.just(0),
    st.just(b""),
    int32s,
    st.lists(st.tuples(int64s, int64s), max_size=3) | st.just([(1, 2)] * 200),
).map(lambda answer: answer._replace(records_length=len(answer.records or b"")))
pairs = st.none() | st.tuples(int32s, int64s)
leaders = st.none() | st.tuples(int32s, int32s)
endpoints = st.lists(st.tuples(int32s, names, int32s, st.none() | names), max_size=3)


def with_tags(answer: PartitionAnswer, data: st.DataObject, version: int) -> tuple[PartitionAnswer, dict[str, Any]]:
    """An answer with random tagged fields, and the same fields as they are declared."""
    diverging, leader = data.draw(pairs), data.draw(leaders)
    if version < 12:
        diverging = leader = None
    answer = answer._replace(
        tags=answer_tags(diverging, leader),
        preferred_read_replica=answer.preferred_read_replica if version >= 11 else -1,
    )
    return answer, {
        "diverging_epoch": diverging and EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        "current_leader": leader and LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        "preferred_read_replica": answer.preferred_read_replica,
    }


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=30, deadline=None)
@given(
    data=st.data(),
    correlation_id=int32s,
    error_code=st.integers(0, 100),
    read_committed=st.booleans(),
    session_id=int32s,
)
def test_a_fetch_reply_is_written_as_declared(
    version: int, data: st.DataObject, correlation_id: int, error_code: int, read_committed: bool, session_id: int
) -> None:
    topic_keys = st.uuids() if version >= 13 else names
    drawn = data.draw(st.lists(st.tuples(topic_keys, st.lists(answers, max_size=3)), max_size=3))
    tagged = [(key, [with_tags(answer, data, version) for answer in rows]) for key, rows in drawn]
    nodes = data.draw(endpoints) if version >= 16 else []
    declared = FetchResponse(
        error_code=error_code,
        session_id=session_id,
        node_endpoints=[NodeEndpoint(node_id=a, host=b, port=c, rack=d) for a, b, c, d in nodes],
        responses=[
            FetchableTopicResponse(
                **({"topic_id": key} if version >= 13 else {"topic": key}),
                partitions=[
                    PartitionData(
                        partition_index=answer.partition,
                        error_code=answer.error_code,
                        high_watermark=answer.high_watermark,
                        last_stable_offset=answer.last_stable_offset,
                        log_start_offset=answer.log_start_offset,
                        aborted_transactions=[
                            AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                            for producer_id, first_offset in answer.aborted
                        ]
                        if read_committed
                        else None,
                        records=answer.records or b"",
                        **fields,
                    )
                    for answer, fields in rows
                ],
            )
            for key, rows in tagged
        ],
    )
    in_pieces = [
        (key, [a._replace(records=a.records and SimpleNamespace(data=a.records)) for a, _ in rows])
        for key, rows in tagged
    ]
    tags = endpoint_tags(nodes)
    pieces = fetch_reply(correlation_id, version, error_code, in_pieces, read_committed, session_id, tags)
    written = b"".join(piece if isinstance(piece, bytes) else piece.data for piece in pieces)
    assert written == response_frame(correlation_id, declared, version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_request_cut_at_any_byte_is_malformed(version: int) -> None:
    body = memoryview(full_message(ProduceRequest, version).write(version))
    for end in range(len(body)):
        with pytest.raises(MalformedRequestError):
            read_produce(body[:end], 0, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_request_cut_inside_its_topics_is_malformed(version: int) -> None:
    """The fields after the topics belong to fetch sessions and racks, and are not read."""
    request = full_message(FetchRequest, version)
    body = memoryview(request.write(version))
    request.topics[-1].partitions[-1].partition_max_bytes += 1
    last_byte_of_topics = max(
        i for i, (one, two) in enumerate(zip(body, request.write(version), strict=True)) if one != two
    )
    for end in range(last_byte_of_topics + 1):
        with pytest.raises(MalformedRequestError):
            read_fetch(body[:end], 0, version)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_mutated_requests_give_the_declared_answer_or_are_malformed(data: st.DataObject) -> None:
    """Neither codec may raise anything else, and if both succeed, the results are equal."""
    request_type: Any = data.draw(st.sampled_from([ProduceRequest, FetchRequest]))
    version = data.draw(st.integers(request_type.versions.low, request_type.versions.high))
    body = bytearray(data.draw(messages(request_type, version)).write(version))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        declared, _ = request_type.read(memoryview(body), version)
    except MalformedRequestError:
        declared = None
    read_hot: Any = read_produce if request_type is ProduceRequest else read_fetch
    try:
        hot = read_hot(memoryview(body), 0, version)
    except MalformedRequestError:
        assert declared is None
        return
    if declared is not None:
        expected: Any = as_call(declared) if request_type is ProduceRequest else as_fetch_call(declared, version)
        assert (with_bytes(hot) if request_type is ProduceRequest else hot) == (
            with_bytes(expected) if request_type is ProduceRequest else expected
        )
