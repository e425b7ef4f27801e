"""The hand-written codec of a follower's Fetch writes requests and reads responses as the declared one does."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.errors import MalformedRequestError
from skylog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from skylog.protocol.replica_fetch_hot import (
    VERSION,
    ReplicaAnswer,
    ReplicaFetchResponse,
    ReplicaRow,
    read_replica_answers,
    replica_fetch,
)

from .strategies import full_message, messages

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
rows = st.builds(ReplicaRow, int32s, int32s, int64s, int32s, int64s, int32s)
many = st.sampled_from([126, 127, 300])  # the lengths of one byte end at 126


@settings(max_examples=60, deadline=None)
@given(
    replica=st.tuples(int32s, int64s).filter(lambda state: state != (-1, -1)),
    max_wait_ms=int32s,
    max_bytes=int32s,
    session=st.tuples(int32s, int32s),
    topics=st.dictionaries(st.uuids(), st.lists(rows, max_size=3), max_size=3),
    forgotten=st.dictionaries(st.uuids(), st.lists(int32s, max_size=3), max_size=3),
    repeated=st.none() | st.tuples(st.uuids(), many),
)
def test_a_request_is_written_as_declared(
    replica: tuple[int, int],
    max_wait_ms: int,
    max_bytes: int,
    session: tuple[int, int],
    topics: dict[UUID, list[ReplicaRow]],
    forgotten: dict[UUID, list[int]],
    repeated: tuple[UUID, int] | None,
) -> None:
    if repeated is not None:
        topics[repeated[0]] = [ReplicaRow(1, 2, 3, 4, 5, 6)] * repeated[1]
        forgotten[repeated[0]] = [7] * repeated[1]
    declared = FetchRequest(
        replica_state=ReplicaState(replica_id=replica[0], replica_epoch=replica[1]),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(topic_id=topic_id, partitions=[_declared(row) for row in topic_rows])
            for topic_id, topic_rows in topics.items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in forgotten.items()
        ],
    )
    assert replica_fetch(*replica, max_wait_ms, max_bytes, session, topics, forgotten) == declared.write(VERSION)


def _declared(row: ReplicaRow) -> FetchPartition:
    return FetchPartition(
        partition=row.partition,
        current_leader_epoch=row.leader_epoch,
        fetch_offset=row.offset,
        last_fetched_epoch=row.last_fetched_epoch,
        log_start_offset=row.log_start_offset,
        partition_max_bytes=row.max_bytes,
    )


def as_answers(response: FetchResponse) -> ReplicaFetchResponse:
    answers: Any = [
        ReplicaAnswer(
            topic.topic_id,
            row.partition_index,
            row.error_code,
            row.high_watermark,
            row.log_start_offset,
            row.records or b"",  # type: ignore[arg-type]
            (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) if row.diverging_epoch else None,
        )
        for topic in response.responses
        for row in topic.partitions
    ]
    return ReplicaFetchResponse(response.error_code, response.session_id, answers)


def with_bytes(response: ReplicaFetchResponse) -> ReplicaFetchResponse:
    answers: Any = [answer._replace(records=bytes(answer.records)) for answer in response.answers]  # type: ignore[arg-type]
    return response._replace(answers=answers)


@settings(max_examples=100, deadline=None)
@given(response=messages(FetchResponse, VERSION), shift=st.integers(0, 3))
def test_a_response_is_read_as_declared(response: FetchResponse, shift: int) -> None:
    frame = memoryview(bytearray(bytes(shift) + response.write(VERSION)))
    assert with_bytes(read_replica_answers(frame, shift)) == with_bytes(as_answers(response))


def test_a_response_with_every_field_is_read_as_declared() -> None:
    response = full_message(FetchResponse, VERSION)
    assert any(row.diverging_epoch for topic in response.responses for row in topic.partitions)
    frame = memoryview(response.write(VERSION))
    assert with_bytes(read_replica_answers(frame, 0)) == with_bytes(as_answers(response))


def test_unknown_tags_of_a_response_are_skipped() -> None:
    response = full_message(FetchResponse, VERSION)
    response.node_endpoints = []
    for row in (row for topic in response.responses for row in topic.partitions):
        row.diverging_epoch = row.current_leader = row.snapshot_id = None
    plain = response.write(VERSION)
    assert plain.endswith(b"\0\0\0")  # the tags of the last partition, its topic and the response
    tagged = plain[:-3] + b"\x01\x63\x02hi" + b"\x01\x63\x00" + b"\x02\x07\x01a\x63\x01b"
    assert with_bytes(read_replica_answers(memoryview(tagged), 0)) == with_bytes(as_answers(response))


def test_records_are_views_into_the_frame() -> None:
    frame = memoryview(bytearray(full_message(FetchResponse, VERSION).write(VERSION)))
    (answer, *_) = [each for each in read_replica_answers(frame, 0).answers if len(each.records)]
    assert answer.records.obj is frame.obj


def test_a_response_cut_at_any_byte_before_its_last_tags_is_malformed() -> None:
    """The tags of the response itself, with the addresses of leaders, are not read."""
    response = full_message(FetchResponse, VERSION)
    tail = len(response.write(VERSION))
    response.node_endpoints = []
    body = memoryview(response.write(VERSION))
    assert len(body) < tail
    for end in range(len(body) - 1):
        with pytest.raises(MalformedRequestError):
            read_replica_answers(body[:end], 0)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_response_is_read_as_declared_or_malformed(data: st.DataObject) -> None:
    body = bytearray(data.draw(messages(FetchResponse, VERSION)).write(VERSION))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        declared, _ = FetchResponse.read(memoryview(body), VERSION)
    except MalformedRequestError:
        declared = None
    try:
        found = with_bytes(read_replica_answers(memoryview(body), 0))
    except MalformedRequestError:
        assert declared is None
        return
    if declared is not None:
        assert found == with_bytes(as_answers(declared))
