"""Firing and collecting, up to the producer."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from skylog.events import EventLog, RequestScope
from skylog.events.event_log import COLLECTED_MAX
from skylog.testing import ManualClock

from .fake_producer import FakeProducer


@pytest.fixture
def producer() -> FakeProducer:
    return FakeProducer()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def events(producer: FakeProducer, clock: ManualClock) -> Iterator[EventLog]:
    log = EventLog(producer, topic="blog_log", application="blog", clock=clock)
    yield log
    log.close()


def test_outside_of_a_scope_an_event_is_handed_over_at_once(events: EventLog, producer: FakeProducer) -> None:
    events.fire("a")
    assert producer.names == ["a"]


def test_the_events_of_a_scope_are_handed_over_at_its_end_in_their_order(
    events: EventLog, producer: FakeProducer
) -> None:
    with events.request():
        events.fire("a")
        events.fire("b")
        assert producer.names == []
    assert producer.names == ["a", "b"]


def test_a_scope_that_fails_hands_over_too(events: EventLog, producer: FakeProducer) -> None:
    def fail() -> None:
        with events.request():
            events.fire("a")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail()
    assert producer.names == ["a"]


def test_a_scope_inside_a_scope_joins_it(events: EventLog, producer: FakeProducer) -> None:
    with events.request():
        with events.request():
            events.fire("a")
        assert producer.names == []
        events.fire("b")
    assert producer.names == ["a", "b"]


def test_the_next_scope_starts_anew(events: EventLog, producer: FakeProducer) -> None:
    for name in ("a", "b"):
        with events.request():
            events.fire(name)
    events.fire("c")
    assert producer.names == ["a", "b", "c"]


def test_scopes_leave_nothing_behind(events: EventLog) -> None:
    for _ in range(100):
        with events.request():
            events.fire("a")
    left = [found for found in gc.get_objects() if type(found) is RequestScope and found._log is events]
    assert len(left) <= 1  # the context keeps the last one


def test_a_long_scope_hands_over_on_the_way(events: EventLog, producer: FakeProducer) -> None:
    with events.request():
        for _ in range(COLLECTED_MAX + 1):
            events.fire("a")
        assert len(producer.names) == COLLECTED_MAX
    assert len(producer.names) == COLLECTED_MAX + 1


def test_two_logs_collect_apart(events: EventLog, producer: FakeProducer) -> None:
    other_producer = FakeProducer()
    other = EventLog(other_producer)
    with events.request(), other.request():
        events.fire("a")
        other.fire("b")
    other.close()
    assert (producer.names, other_producer.names) == (["a"], ["b"])


def test_concurrent_tasks_do_not_mix_their_requests(events: EventLog, producer: FakeProducer) -> None:
    async def request(number: int) -> None:
        with events.request():
            for step in range(3):
                events.fire(f"{number}.{step}")
                await asyncio.sleep(0)

    async def serve() -> None:
        await asyncio.gather(*(request(number) for number in range(20)))

    asyncio.run(serve())
    assert len(producer.names) == 60
    assert producer.names == [f"{name.partition('.')[0]}.{step % 3}" for step, name in enumerate(producer.names)]


def test_concurrent_threads_do_not_mix_their_requests(events: EventLog, producer: FakeProducer) -> None:
    together = threading.Barrier(4)

    def request(number: int) -> None:
        with events.request():
            for step in range(3):
                events.fire(f"{number}.{step}")
                together.wait(10)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(request, range(4)))
    for number in range(4):
        assert [name for name in producer.names if name[0] == str(number)] == [f"{number}.{step}" for step in range(3)]


def test_a_task_of_the_request_collects_into_its_scope(events: EventLog, producer: FakeProducer) -> None:
    async def request() -> None:
        with events.request():
            await asyncio.create_task(fire("child"))
            await asyncio.to_thread(events.fire, "thread")
            assert producer.names == []

    async def fire(name: str) -> None:
        events.fire(name)

    asyncio.run(request())
    assert producer.names == ["child", "thread"]


def test_a_task_that_outlives_its_request_loses_nothing(events: EventLog, producer: FakeProducer) -> None:
    async def late(answered: asyncio.Event) -> None:
        await answered.wait()
        events.fire("late")
        assert producer.names == ["early", "late"]
        with events.request():
            events.fire("later")

    async def serve() -> None:
        answered = asyncio.Event()
        with events.request():
            task = asyncio.create_task(late(answered))
            events.fire("early")
        answered.set()
        await task

    asyncio.run(serve())
    assert producer.names == ["early", "late", "later"]


def test_what_cannot_be_encoded_is_counted_and_logged_and_nothing_more(
    events: EventLog, producer: FakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    class Detached:
        @property
        def id(self) -> int:
            raise RuntimeError("the session is gone")

    events.fire("a", amount=1 << 64)
    events.fire("b", Detached())
    events.fire("c", object())
    events.fire("d")
    assert producer.names == ["d"]
    assert events.stats().fired == 4
    assert events.stats().dropped["unencodable"] == 3
    assert "blog_log: 1 unencodable (a: " in caplog.text


def test_an_event_is_as_it_was_when_it_was_fired(events: EventLog, producer: FakeProducer) -> None:
    tags, user = ["a"], SimpleNamespace(id=7, created_at=None)
    odd = SimpleNamespace(id=["x"])
    with events.request():
        events.fire("tagged", user, tags=tags, count=1)
        events.fire("plain", user, count=1)
        events.fire("odd", odd)
        tags.append("b")
        odd.id.append("y")
        user.id = 8
        assert producer.names == []
    assert [event["attributes"] for event in producer.events] == [{"tags": ["a"], "count": 1}, {"count": 1}, {}]
    assert [event["user"]["id"] for event in producer.events] == [7, 7, ["x"]]


def test_what_cannot_be_encoded_at_the_end_of_a_request_is_dropped_alone(
    events: EventLog, producer: FakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    with events.request():
        events.fire("a")
        events.fire("b", amount=1 << 64)
        events.fire("c", name="\ud800")
        events.fire("d")
        assert (events.stats().fired, events.stats().buffered) == (4, 4)
    assert producer.names == ["a", "d"]
    stats = events.stats()
    assert (stats.fired, stats.handed_over, stats.dropped["unencodable"]) == (4, 2, 2)
    assert "blog_log: 1 unencodable (b: " in caplog.text


def test_what_finds_the_buffer_full_is_counted_and_logged_now_and_then(
    events: EventLog, producer: FakeProducer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    producer.room = 1
    for _ in range(5):
        events.fire("a")
    with events.request():
        events.fire("b")
        events.fire("c")
    assert [record.getMessage() for record in caplog.records] == ["dropped events for topic blog_log: 1 buffer_full"]
    clock.advance_ms(10_000)
    events.fire("d")
    assert caplog.records[-1].getMessage() == "dropped events for topic blog_log: 6 buffer_full"
    assert events.stats().dropped == {
        "unencodable": 0,
        "schema_refused": 0,
        "buffer_full": 7,
        "refused": 0,
        "undelivered": 0,
    }
    events.fire("e")
    events.close()
    assert caplog.records[-1].getMessage() == "dropped events for topic blog_log: 1 buffer_full"


def test_what_the_producer_refuses_does_not_fail_the_request(events: EventLog, producer: FakeProducer) -> None:
    class Picky(FakeProducer):
        def offer(
            self, topic: str, value: bytes, key: bytes | None = None, timestamp_ms: int = 0, headers: Any = None
        ) -> bool:
            if len(value) > 1000:
                raise ValueError("too large")
            return super().offer(topic, value, key, timestamp_ms, headers)

    picky = Picky()
    log = EventLog(picky)
    with log.request():
        log.fire("large", text="x" * 1000)
        log.fire("small")
    assert picky.names == ["small"]
    assert log.stats().dropped["refused"] == 1
    log.close()


def test_an_undelivered_event_is_a_drop(
    events: EventLog, producer: FakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    events.fire("a")
    producer.failed_count = 1
    assert events.stats().dropped["undelivered"] == 1
    assert events.stats().dropped["undelivered"] == 1
    assert "1 undelivered" in caplog.text


def test_every_event_is_in_one_of_the_counts(events: EventLog, producer: FakeProducer) -> None:
    producer.room = 3
    for _ in range(4):
        events.fire("a")
    producer.delivered_count = 1
    with events.request():
        events.fire("b")
        stats = events.stats()
    assert (stats.fired, stats.handed_over, stats.delivered, stats.buffered) == (5, 3, 1, 3)
    assert stats.fired == stats.delivered + sum(stats.dropped.values()) + stats.buffered


def test_close_sends_what_open_scopes_have_collected(
    events: EventLog, producer: FakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.is_down = True
    with events.request():
        events.fire("a")
        events.close()
        assert producer.names == ["a"]
    assert producer.names == ["a"]
    assert "events for topic blog_log that were not delivered within 10 s of closing: 1" in caplog.text


def test_a_forked_process_leaves_the_events_of_its_parent_alone(events: EventLog, producer: FakeProducer) -> None:
    with events.request():
        events.fire("parent")
        child = os.fork()
        if child == 0:
            events.fire("child")
            events.request().__enter__().hand_over()
            os._exit(0 if (producer.names, events.stats().fired) == (["child"], 1) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert producer.names == ["parent"]
    assert events.stats().fired == 1


def test_the_log_is_quiet_while_nothing_is_lost(
    events: EventLog, producer: FakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), events.request():
        events.fire("a")
    events.close()
    assert caplog.records == []
