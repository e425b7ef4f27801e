"""Firing and collecting, up to the producer."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from skylog.events import EventLog, RequestScope
from skylog.events.courier import COLLECTED_MAX
from skylog.testing import ManualClock
from tests.broker.process import until

from .shelf import Shelf


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def events(shelf: Shelf, clock: ManualClock) -> Iterator[EventLog]:
    log = EventLog(shelf, topic="blog_log", application="blog", clock=clock)
    yield log
    log.close()


def test_outside_of_a_scope_an_event_is_handed_over_soon(events: EventLog, shelf: Shelf) -> None:
    events.fire("a")
    shelf.wait_for("a")


def test_the_events_of_a_scope_are_handed_over_at_its_end_in_their_order(events: EventLog, shelf: Shelf) -> None:
    with events.request():
        events.fire("a")
        events.fire("b")
        shelf.let_a_round_pass(events)
        assert shelf.names == []
    shelf.wait_for("a", "b")


def test_a_scope_that_fails_hands_over_too(events: EventLog, shelf: Shelf) -> None:
    def fail() -> None:
        with events.request():
            events.fire("a")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail()
    shelf.wait_for("a")


def test_a_scope_inside_a_scope_joins_it(events: EventLog, shelf: Shelf) -> None:
    with events.request():
        with events.request():
            events.fire("a")
        shelf.let_a_round_pass(events)
        assert shelf.names == []
        events.fire("b")
    shelf.wait_for("a", "b")


def test_the_next_scope_starts_anew(events: EventLog, shelf: Shelf) -> None:
    for name in ("a", "b"):
        with events.request():
            events.fire(name)
    events.fire("c")
    shelf.wait_for("a", "b", "c")


def test_what_is_fired_in_a_scope_and_after_it_stays_in_order(events: EventLog, shelf: Shelf) -> None:
    events.fire("a")
    with events.request():
        events.fire("b")
    events.fire("c")
    with events.request():
        events.fire("d")
    shelf.wait_for("a", "b", "c", "d")


def test_scopes_leave_nothing_behind(events: EventLog) -> None:
    for _ in range(100):
        with events.request():
            events.fire("a")
    events.flush()
    left = [found for found in gc.get_objects() if type(found) is RequestScope and found._current is events._scope]
    assert len(left) <= 1  # the context keeps the last one


def test_a_scope_with_many_events_hands_over_on_the_way(events: EventLog, shelf: Shelf) -> None:
    with events.request():
        for _ in range(COLLECTED_MAX):
            events.fire("a")
        until(lambda: len(shelf.names) == COLLECTED_MAX, "the first events")
        events.fire("b")
    until(lambda: len(shelf.names) == COLLECTED_MAX + 1, "the last event")


def test_a_scope_that_is_open_for_long_hands_over_on_the_way(events: EventLog, shelf: Shelf) -> None:
    with events.request():
        events.fire("a")
        shelf.wait_for("a")
        events.fire("b")
        shelf.wait_for("a", "b")


def test_two_logs_collect_apart(events: EventLog, shelf: Shelf) -> None:
    other_shelf = Shelf()
    other = EventLog(other_shelf)
    with events.request(), other.request():
        events.fire("a")
        other.fire("b")
    events.flush()
    other.close()
    assert (shelf.names, other_shelf.names) == (["a"], ["b"])


def test_concurrent_tasks_do_not_mix_their_requests(events: EventLog, shelf: Shelf) -> None:
    async def request(number: int) -> None:
        with events.request():
            for step in range(3):
                events.fire(f"{number}.{step}")
                await asyncio.sleep(0)

    async def serve() -> None:
        await asyncio.gather(*(request(number) for number in range(20)))

    asyncio.run(serve())
    events.flush()
    assert len(shelf.names) == 60
    assert shelf.names == [f"{name.partition('.')[0]}.{step % 3}" for step, name in enumerate(shelf.names)]


def test_concurrent_threads_do_not_mix_their_requests(events: EventLog, shelf: Shelf) -> None:
    together = threading.Barrier(4)

    def request(number: int) -> None:
        with events.request():
            for step in range(3):
                events.fire(f"{number}.{step}")
                together.wait(10)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(request, range(4)))
    events.flush()
    for number in range(4):
        assert [name for name in shelf.names if name[0] == str(number)] == [f"{number}.{step}" for step in range(3)]


def test_a_task_of_the_request_collects_into_its_scope(events: EventLog, shelf: Shelf) -> None:
    async def request() -> None:
        with events.request():
            await asyncio.create_task(fire("child"))
            await asyncio.to_thread(events.fire, "thread")
            shelf.let_a_round_pass(events)
            assert shelf.names == []

    async def fire(name: str) -> None:
        events.fire(name)

    asyncio.run(request())
    shelf.wait_for("child", "thread")


def test_a_task_that_outlives_its_request_loses_nothing(events: EventLog, shelf: Shelf) -> None:
    async def late(answered: asyncio.Event) -> None:
        await answered.wait()
        shelf.wait_for("early")
        events.fire("late")
        shelf.wait_for("early", "late")
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
    shelf.wait_for("early", "late", "later")


def test_what_cannot_be_encoded_is_counted_and_logged_and_nothing_more(
    events: EventLog, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    class Detached:
        @property
        def id(self) -> int:
            raise RuntimeError("the session is gone")

    events.fire("a", amount=1 << 64)
    events.flush()
    assert "blog_log: 1 unencodable (a: " in caplog.text
    events.fire("b", Detached())
    events.fire("c", object())
    events.fire("d", created_at_odd())
    events.fire("e")
    events.flush()
    assert shelf.names == ["e"]
    assert events.stats().fired == 5
    assert events.stats().dropped["unencodable"] == 4


def created_at_odd() -> dict[str, object]:
    return {"id": 7, "created_at": "yesterday"}


def test_an_event_is_what_it_was_when_it_was_fired(events: EventLog, shelf: Shelf, clock: ManualClock) -> None:
    fired_ms = clock.now_ms()
    tags, user = ["a"], SimpleNamespace(id=7, created_at=1.5)
    events.fire("post.create", user, tags=tags, title="Hello")
    tags.append("b")
    user.id = 8
    clock.advance_ms(1000)
    events.flush()
    ((_, _, key, timestamp_ms),) = shelf.messages
    (event,) = shelf.events
    assert (key, timestamp_ms, event["timestamp"]) == (b"7", fired_ms, fired_ms / 1000)
    assert event["user"] == {"id": 7, "created_at": 1.5}
    assert event["attributes"] == {"tags": ["a"], "title": "Hello"}


def test_what_the_producer_refuses_does_not_hold_up_the_others(events: EventLog, shelf: Shelf) -> None:
    class Picky(Shelf):
        def offer(self, topic: str, value: bytes, key: bytes | None = None, timestamp_ms: int = 0) -> bool:
            if len(value) > 1000:
                raise ValueError("too large")
            return super().offer(topic, value, key, timestamp_ms)

    picky = Picky()
    log = EventLog(picky)
    with log.request():
        log.fire("large", text="x" * 1000)
        log.fire("small")
    picky.wait_for("small")
    assert log.stats().dropped["refused"] == 1
    log.close()


def test_what_the_producer_gave_up_is_a_drop(events: EventLog, shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    events.fire("a")
    shelf.wait_for("a")
    shelf.failed_count = 1
    assert events.stats().dropped["undelivered"] == 1
    assert events.stats().dropped["undelivered"] == 1
    assert "1 undelivered" in caplog.text


def test_every_event_is_in_one_of_the_counts(shelf: Shelf) -> None:
    events = EventLog(shelf, buffer_max=3)
    shelf.room = 2
    for _ in range(2):
        events.fire("a")
    shelf.wait_for("a", "a")
    for _ in range(5):
        events.fire("b")
    until(lambda: events.stats().dropped["buffer_full"] == 2, "the drops")
    shelf.delivered_count = 1
    with events.request():
        events.fire("c")
        stats = events.stats()
        assert (stats.fired, stats.handed_over, stats.delivered, stats.buffered) == (8, 2, 1, 5)
        assert stats.fired == stats.delivered + sum(stats.dropped.values()) + stats.buffered
    shelf.room = 100
    events.close()
    stats = events.stats()
    assert (stats.fired, stats.delivered, stats.buffered) == (8, 6, 0)


def test_close_sends_what_open_scopes_have_collected(
    events: EventLog, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.is_down = True
    with events.request():
        events.fire("a")
        events.close()
        assert shelf.names == ["a"]
    assert shelf.names == ["a"]
    assert "events for topic blog_log that were not delivered within 10 s of closing: 1" in caplog.text


def test_a_forked_process_leaves_the_events_of_its_parent_alone(events: EventLog, shelf: Shelf) -> None:
    events.fire("before")
    shelf.wait_for("before")  # so there is a thread, which the child does not have
    with events.request():
        events.fire("parent")
        child = os.fork()
        if child == 0:
            with events.request():
                events.fire("child")
            threading.Thread(target=events.fire, args=("other",)).start()
            is_right = eventually(lambda: shelf.names == ["before", "other", "child"] and events.stats().fired == 2)
            os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    shelf.wait_for("before", "parent")
    assert events.stats().fired == 2


def eventually(condition: Callable[[], bool]) -> bool:
    """In a forked process, where a failing assertion would run the rest of the tests."""
    try:
        until(condition, "the child")
    except AssertionError:
        return False
    return True


def test_the_log_is_quiet_while_nothing_is_lost(
    events: EventLog, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), events.request():
        events.fire("a")
    events.close()
    assert caplog.records == []
