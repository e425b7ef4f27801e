"""What the broker keeps of a connection, and the gate that every request passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.broker.api import Api
from skylog.broker.session import Session
from skylog.errors import ErrorCode, MalformedRequestError
from skylog.protocol.apis import ApiKey
from skylog.protocol.metadata import MetadataRequest

from .conftest import create_topic
from .process import BrokerThread
from .raw import ClosedByBrokerError, RawClient, batch_of


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "data") as running:
        yield running


def lanes_of(thread: BrokerThread) -> list[bool]:
    def look(broker: object) -> list[bool]:
        sessions = [connection._handler for connection in thread.broker.listener.connections]
        return [isinstance(session, Session) and session.lanes is not None for session in sessions]

    return thread.look(look)


def test_a_producer_that_repeats_itself_gets_a_lane_in_its_own_session(thread: BrokerThread) -> None:
    with RawClient(thread.port) as producer, RawClient(thread.port) as other:
        create_topic(other, "t")
        assert producer.produce("t", batch_of(b"a")).error_code == 0
        assert sorted(lanes_of(thread)) == [False, True]


def test_a_name_that_no_topic_can_have_is_not_kept(thread: BrokerThread) -> None:
    with RawClient(thread.port) as producer:
        for name in ("t" * 30_000, "missing"):
            assert producer.produce(name, batch_of(b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (session,) = thread.look(lambda broker: [each.handler for each in broker.listener.connections])
        assert isinstance(session, Session)
        assert session.written == {"missing"}


def test_a_gate_sees_every_request_so_there_are_no_lanes(thread: BrokerThread) -> None:
    seen: list[tuple[str, str, ApiKey]] = []
    thread.broker.router._gate = lambda session, api: seen.append((session.listener, session.principal, api.key))
    with RawClient(thread.port) as client:
        create_topic(client, "t")
        seen.clear()
        for _ in range(3):
            assert client.produce("t", batch_of(b"a")).error_code == 0
    assert seen == [("PLAINTEXT", "User:ANONYMOUS", ApiKey.PRODUCE)] * 3
    assert lanes_of(thread) in ([], [False])


def test_a_request_that_the_gate_refuses_closes_its_connection_only(thread: BrokerThread) -> None:
    def refuse_metadata(session: Session, api: Api) -> None:
        if api.key is ApiKey.METADATA:
            raise MalformedRequestError("not here")

    thread.broker.router._gate = refuse_metadata
    with RawClient(thread.port) as refused, RawClient(thread.port) as other:
        with pytest.raises(ClosedByBrokerError):
            refused.ask(MetadataRequest(topics=None), 9)
        create_topic(other, "t")
