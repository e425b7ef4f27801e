"""Fetch sessions (KIP-227): requests and responses contain only changes, and clients can start over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from skylog.broker.fetch_sessions import EVICT_AFTER_S, MAX_ROWS, MAX_ROWS_OF_ALL, FetchSessions
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from skylog.protocol.fetch_hot import FetchCall, PartitionAnswer, PartitionCall, TopicAnswers

from .conftest import MakeTopic, create_topic
from .process import BrokerProcess, BrokerThread
from .raw import RawClient, batch_of, values_in

VERSIONS = [7, 11, 12, 13, 17]


class Reader:
    """A consumer with a session: knows its id and epoch, as clients do."""

    def __init__(self, client: RawClient, version: int) -> None:
        self._client = client
        self._version = version
        self.session_id = self.epoch = 0

    def key(self, topic: str) -> dict[str, Any]:
        return {"topic_id": self._client.topic(topic).topic_id} if self._version >= 13 else {"topic": topic}

    def request(
        self, topic: str, offsets: dict[int, int], forget: list[int] | None = None, max_wait_ms: int = 0
    ) -> FetchRequest:
        rows = [FetchPartition(partition=n, fetch_offset=at, partition_max_bytes=1 << 20) for n, at in offsets.items()]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(partitions=rows, **self.key(topic))] if rows else [],
            forgotten_topics_data=[ForgottenTopic(partitions=forget, **self.key(topic))] if forget else [],
        )

    def fetch(self, topic: str, offsets: dict[int, int], **options: Any) -> dict[int, list[tuple[int, bytes | None]]]:
        """The values by partition, of those that are in the answer."""
        answer = self._client.ask(self.request(topic, offsets, **options), self._version)
        assert answer.error_code == 0
        if self.epoch == 0:
            self.session_id = answer.session_id
            assert self.session_id > 0
        assert answer.session_id == self.session_id
        self.epoch += 1
        return {row.partition_index: values_in(row.records) for each in answer.responses for row in each.partitions}


@pytest.fixture(params=VERSIONS)
def reader(request: pytest.FixtureRequest, client: RawClient) -> Reader:
    return Reader(client, request.param)


def test_responses_have_only_the_changes(reader: Reader, client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    client.produce(topic, batch_of(b"a"), partition=1)
    assert reader.fetch(topic, {0: 0, 1: 0, 2: 0}) == {0: [], 1: [(0, b"a")], 2: []}
    assert reader.fetch(topic, {1: 1}) == {}
    client.produce(topic, batch_of(b"b"), partition=2)
    assert reader.fetch(topic, {}) == {2: [(0, b"b")]}
    assert reader.fetch(topic, {}) == {2: [(0, b"b")]}, "the offset is still the old one"
    assert reader.fetch(topic, {2: 1}) == {}


def test_partitions_are_added_and_forgotten(reader: Reader, client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        client.produce(topic, batch_of(b"%d" % partition), partition=partition)
    assert reader.fetch(topic, {0: 1, 1: 0}) == {0: [], 1: [(0, b"1")]}
    assert reader.fetch(topic, {2: 0}, forget=[1]) == {2: [(0, b"2")]}
    client.produce(topic, batch_of(b"more"), partition=1)
    assert reader.fetch(topic, {2: 1}) == {}


def test_an_append_wakes_a_parked_incremental_fetch(
    reader: Reader, broker: BrokerProcess, client: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    assert reader.fetch(topic, {0: 0, 1: 0}) == {0: [], 1: []}
    request = reader.request(topic, {}, max_wait_ms=30_000)
    with RawClient(broker.port) as waiting:
        waiting.send(request, reader._version)
        assert not waiting.has_answer(0.2)
        client.produce(topic, batch_of(b"x"), partition=1)
        (answered,) = waiting.receive().responses
        assert [(row.partition_index, values_in(row.records)) for row in answered.partitions] == [(1, [(0, b"x")])]


def test_an_error_is_repeated_while_it_lasts(reader: Reader, client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    request = reader.request(topic, {0: 5})
    opened = client.ask(request, reader._version)
    reader.session_id, reader.epoch = opened.session_id, 1
    for _ in range(2):
        answer = client.ask(reader.request(topic, {}), reader._version)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        reader.epoch += 1
    assert reader.fetch(topic, {0: 0}) == {0: []}, "that the partition is well again is new"
    assert reader.fetch(topic, {}) == {}


def test_another_id_or_epoch_is_an_error_and_closing_forgets(
    reader: Reader, client: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    reader.fetch(topic, {0: 0})

    def error(session_id: int, epoch: int) -> int:
        request = reader.request(topic, {})
        request.session_id, request.session_epoch = session_id, epoch
        answer = client.ask(request, reader._version)
        assert answer.responses == []
        code: int = answer.error_code
        return code

    assert error(reader.session_id, 7) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert error(reader.session_id ^ 1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert error(0, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert error(reader.session_id, -1) == ErrorCode.NONE
    assert error(reader.session_id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_topic_ids_and_names_do_not_mix_in_a_session(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    by_name = Reader(client, 12)
    by_name.fetch(topic, {0: 0})
    answer = client.ask(by_name.request(topic, {}), 13)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_without_slots_every_request_is_a_full_one(tmp_path: Path) -> None:
    settings = {"max.incremental.fetch.session.cache.slots": "0"}
    with BrokerThread(tmp_path / "data", settings) as thread, RawClient(thread.port) as client:
        create_topic(client, "t")
        answer = client.ask(Reader(client, 12).request("t", {0: 0}), 12)
        assert (answer.error_code, answer.session_id, len(answer.responses)) == (0, 0, 1)


# -- the cache, without a broker


def call(rows: int = 1, session_id: int = 0, epoch: int = 0, topic: str | UUID = "t") -> FetchCall:
    return FetchCall(0, 1, 1, 0, session_id, epoch, [(topic, [PartitionCall(n, -1, 0, 100) for n in range(rows)])])


def answers(rows: int = 1) -> TopicAnswers:
    return [("t", [PartitionAnswer(n, 0, 0, 0, 0, None, 0) for n in range(rows)])]


@pytest.fixture
def sessions() -> Iterator[FetchSessions]:
    cache = FetchSessions(2)
    yield cache
    assert len(cache) <= 2


def test_a_full_cache_declines_until_a_session_was_silent_for_long(sessions: FetchSessions) -> None:
    first, second = (sessions.open(call(), answers(), False, now_s) for now_s in (0.0, 1.0))
    assert sessions.open(call(), answers(), False, 2.0) == 0
    sessions.advance(call(0, first, 1), False, 3.0)
    assert sessions.open(call(), answers(), False, 1.0 + EVICT_AFTER_S) > 0, "in place of the second"
    sessions.advance(call(0, first, 2), False, 200.0)
    with pytest.raises(KafkaError) as raised:
        sessions.advance(call(0, second, 1), False, 200.0)
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_has_a_bounded_number_of_partitions(sessions: FetchSessions) -> None:
    assert sessions.open(call(MAX_ROWS + 1), answers(), False, 0.0) == 0
    session_id = sessions.open(call(1), answers(), False, 0.0)
    with pytest.raises(KafkaError):
        sessions.advance(call(MAX_ROWS + 1, session_id, 1), False, 0.0)
    assert len(sessions) == 0


def test_all_sessions_together_have_a_bounded_number_of_partitions() -> None:
    cache = FetchSessions(1000)
    wide = call(MAX_ROWS)
    opened = [cache.open(wide, answers(), False, 0.0) for _ in range(MAX_ROWS_OF_ALL // MAX_ROWS + 1)]
    assert all(opened[:-1])
    assert opened[-1] == 0
    assert cache.open(call(), answers(), False, EVICT_AFTER_S) > 0, "in place of the oldest"


def test_sessions_do_not_grow_together_beyond_their_bound() -> None:
    cache = FetchSessions(1000)
    opened = [cache.open(call(1), answers(), False, 0.0) for _ in range(MAX_ROWS_OF_ALL // MAX_ROWS + 1)]
    for session_id in opened[:-2]:
        cache.advance(call(MAX_ROWS, session_id, 1), False, 0.0)
    with pytest.raises(KafkaError) as raised:
        cache.advance(call(MAX_ROWS, opened[-2], 1), False, 0.0)
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.close(opened[0])
    assert cache.open(call(MAX_ROWS), answers(), False, 0.0) > 0, "in place of the one that was closed"


def test_a_session_keeps_no_endless_names(sessions: FetchSessions) -> None:
    assert sessions.open(call(1, topic="x" * 250), answers(), False, 0.0) == 0
    session_id = sessions.open(call(1), answers(), False, 0.0)
    with pytest.raises(KafkaError):
        sessions.advance(call(1, session_id, 1, topic="x" * 250), False, 0.0)
    assert len(sessions) == 0


def test_partitions_with_records_are_read_last_the_next_time(sessions: FetchSessions) -> None:
    """So that none of them starves if the response is limited."""
    session = sessions.advance(call(0, sessions.open(call(3), answers(3), False, 0.0), 1), False, 0.0)
    session.changed([("t", [PartitionAnswer(0, 0, 9, 9, 0, object(), 100)])])
    assert [row.partition for _, rows in session.topics() for row in rows] == [1, 2, 0]


def test_epochs_begin_again_behind_the_largest(sessions: FetchSessions) -> None:
    session_id = sessions.open(call(), answers(), False, 0.0)
    session = sessions.advance(call(0, session_id, 1), False, 0.0)
    session.epoch = 0x7FFFFFFF
    assert sessions.advance(call(0, session_id, 0x7FFFFFFF), False, 0.0).epoch == 1
