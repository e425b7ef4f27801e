"""The client's side of a fetch session: what it asks for, and which responses it rejects."""

from __future__ import annotations

from uuid import UUID

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, PartitionData
from skylog.simulation.clients.session_reader import Session

TOPIC = UUID(int=7)


def rows(**offsets: int) -> dict[tuple[UUID, int], FetchPartition]:
    return {
        (TOPIC, int(name[1:])): FetchPartition(partition=int(name[1:]), fetch_offset=offset, partition_max_bytes=100)
        for name, offset in offsets.items()
    }


def ask(session: Session, **offsets: int) -> FetchRequest:
    return session.request(rows(**offsets), "rack-1", 1000, read_committed=False)


def listed(request: FetchRequest) -> list[int]:
    return [row.partition for topic in request.topics for row in topic.partitions]


def response(session_id: int, *partitions: int, error_code: int = 0) -> FetchResponse:
    data = [PartitionData(partition_index=each, high_watermark=9) for each in partitions]
    topics = [FetchableTopicResponse(topic_id=TOPIC, partitions=data)] if data else []
    return FetchResponse(error_code=error_code, session_id=session_id, responses=topics)


def opened() -> Session:
    session = Session()
    ask(session, p0=5, p1=5)
    assert len(list(session.take(response(77, 0, 1)))) == 2
    return session


def test_the_first_request_lists_everything_and_later_ones_what_has_changed() -> None:
    session = opened()
    request = ask(session, p0=8, p1=5)
    assert (request.session_id, request.session_epoch, listed(request)) == (77, 1, [0])
    assert [row.fetch_offset for row, _ in session.take(response(77, 0))] == [8]
    request = ask(session, p1=5, p2=0)
    assert (request.session_epoch, listed(request)) == (2, [2])
    assert [each.partitions for each in request.forgotten_topics_data] == [[0]]


def test_a_session_that_the_broker_has_lost_is_opened_again() -> None:
    session = opened()
    ask(session, p0=8, p1=5)
    assert not list(session.take(response(0, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)))
    request = ask(session, p0=8, p1=5)
    assert (request.session_id, request.session_epoch, listed(request)) == (0, 0, [0, 1])


def test_a_session_that_begins_anew_closes_the_former_one() -> None:
    session = opened()
    session.start_anew()
    request = ask(session, p0=8)
    assert (request.session_id, request.session_epoch, listed(request)) == (77, 0, [0])


def test_responses_that_do_not_fit_the_session_are_rejected() -> None:
    session = Session()
    ask(session, p0=5, p1=5)
    with pytest.raises(AssertionError, match="not in a full response"):
        list(session.take(response(77, 0)))
    session = opened()
    ask(session, p0=8)
    with pytest.raises(AssertionError, match="not part of the session"):
        list(session.take(response(77, 1)))
    with pytest.raises(AssertionError, match="in place of 77"):
        list(session.take(response(78, 0)))
