"""From the scopes to the producer: in order, bounded, whatever the producer and the rest of the process do."""

from __future__ import annotations

import contextvars
import itertools
import linecache
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from skylog.events import EventLog
from tests.broker.process import until

from .shelf import Shelf


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def events(shelf: Shelf) -> Iterator[EventLog]:
    log = EventLog(shelf, topic="blog_log", buffer_max=100)
    yield log
    log.close()


def couriers(topic: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"skylog-events-{topic}"]


def test_there_is_no_thread_before_the_first_event_and_none_after_the_end(shelf: Shelf) -> None:
    log = EventLog(shelf, topic="of_its_own")
    assert not couriers("of_its_own")
    for _ in range(3):
        log.fire("a")
    assert len(couriers("of_its_own")) == 1
    log.close()
    until(lambda: not couriers("of_its_own"), "the thread to end")


def test_what_the_producer_has_no_room_for_waits_in_order(events: EventLog, shelf: Shelf) -> None:
    shelf.room = 2
    for number in range(5):
        events.fire(f"{number}")
    shelf.wait_for("0", "1")
    assert events.stats().buffered == 5
    shelf.room = 4
    shelf.wait_for("0", "1", "2", "3")
    events.fire("5")
    shelf.room = 100
    shelf.wait_for("0", "1", "2", "3", "4", "5")
    assert events.stats().dropped["buffer_full"] == 0


def test_what_the_buffer_has_no_room_for_is_dropped(
    events: EventLog, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.room = 1
    events.fire("first")
    shelf.wait_for("first")
    for number in range(130):
        events.fire(f"{number}")
    until(lambda: events.stats().dropped["buffer_full"] == 30, "the drops")
    assert "buffer_full" in caplog.text
    assert events.stats().buffered == 101
    shelf.room = 1000
    shelf.wait_for("first", *(str(number) for number in range(100)))


def test_what_even_an_empty_queue_has_no_room_for_holds_nobody_up(events: EventLog, shelf: Shelf) -> None:
    shelf.room = 0
    events.fire("a")
    until(lambda: events.stats().dropped["buffer_full"] == 1, "the drop")
    shelf.room = 1
    events.fire("b")
    shelf.wait_for("b")


def test_a_flush_goes_on_when_the_queue_has_room_again(events: EventLog) -> None:
    class Narrow(Shelf):
        """A queue of ten, which a flush empties."""

        def offer(self, topic: str, value: bytes, key: bytes | None = None, timestamp_ms: int = 0) -> bool:
            self.room = self.delivered_count + 10
            return super().offer(topic, value, key, timestamp_ms)

    narrow = Narrow()
    log = EventLog(narrow)
    for number in range(35):
        log.fire(f"{number}")
    assert log.flush() == 0
    assert narrow.names == [str(number) for number in range(35)]
    log.close()


def test_a_producer_that_fails_is_logged_and_asked_again(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Shelf):
        """Whose counts cannot be had."""

        is_broken = True

        @property
        def failed_count(self) -> int:
            if self.is_broken:
                raise ConnectionError("no counts today")
            return 0

        @failed_count.setter
        def failed_count(self, count: int) -> None:
            pass

    failing = Failing()
    log = EventLog(failing, topic="blog_log")
    log.fire("a")
    until(lambda: "events for topic blog_log could not be handed over" in caplog.text, "the line in the log")
    assert "no counts today" in caplog.text
    failing.is_broken = False
    log.fire("b")
    failing.wait_for("a", "b")
    log.close()


def test_many_threads_lose_nothing_and_keep_their_orders(shelf: Shelf) -> None:
    log = EventLog(shelf)
    sizes = itertools.cycle([1, 5, 150])

    def work(thread: int) -> None:
        for request in range(50):
            with log.request():
                for step in range(next(sizes)):
                    log.fire(f"{thread}.{request}.{step}")
            log.fire(f"{thread}.between")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    log.close()
    stats = log.stats()
    assert stats.fired == stats.delivered == len(shelf.names)
    assert stats.buffered == 0
    for thread in range(8):
        mine = [name.split(".") for name in shelf.names if name.startswith(f"{thread}.")]
        assert mine.count([str(thread), "between"]) == 50
        for request in range(50):
            steps = [int(name[2]) for name in mine if name[1] == str(request)]
            assert steps == list(range(len(steps)))
            assert steps


def test_a_scope_that_threads_share_loses_nothing_at_its_end(shelf: Shelf) -> None:
    log = EventLog(shelf)
    for _ in range(20):
        together = threading.Barrier(5)
        with log.request():
            context = [contextvars.copy_context() for _ in range(4)]

            def fire(number: int, together: threading.Barrier = together) -> None:
                together.wait(10)
                for step in range(50):
                    log.fire(f"{number}.{step}")

            threads = [threading.Thread(target=context[n].run, args=(fire, n)) for n in range(4)]
            for thread in threads:
                thread.start()
            together.wait(10)
        for thread in threads:
            thread.join()
    log.close()
    assert len(shelf.names) == 20 * 4 * 50
    assert log.stats().fired == 20 * 4 * 50


def test_firing_from_a_signal_handler_and_a_finalizer_does_not_deadlock(shelf: Shelf) -> None:
    log = EventLog(shelf)
    handled = 0

    class Node:
        """In a cycle, so that the collector finds it, whatever the thread is doing."""

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            nonlocal handled
            handled += 1
            log.fire("finalizer")

    def handle(*_: object) -> None:
        nonlocal handled
        handled += 1
        log.fire("signal")
        log.stats()

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        deadline = time.monotonic() + 1
        fired = 0
        while time.monotonic() < deadline:
            with log.request():
                log.fire("a", 7, tags=[Node().me is None])
            log.flush()
            fired += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    log.close()
    assert shelf.names.count("signal") > 10
    assert shelf.names.count("a") == fired
    assert len(shelf.names) == handled + fired


def test_after_the_end_events_are_handed_over_by_who_fires_them(events: EventLog, shelf: Shelf) -> None:
    """As in exit handlers that run later than the log's."""
    events.close()
    events.fire("a")
    assert shelf.names == ["a"]
    with events.request():
        events.fire("b")
    assert shelf.names == ["a", "b"]


def test_where_no_thread_can_be_started_events_are_handed_over_by_who_fires_them(
    events: EventLog, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        events.fire("a")
        assert shelf.names == ["a"]
    events.fire("b")
    shelf.wait_for("a", "b")
    assert events.stats().handed_over == 2


def test_a_courier_without_work_waits_for_its_bell(shelf: Shelf) -> None:
    log = EventLog(shelf, topic="idle")
    log.fire("a")
    shelf.wait_for("a")
    (thread,) = couriers("idle")
    until(lambda: "self._bell.get()" in line_of(thread), "the courier to sleep")
    log.close()


def line_of(thread: threading.Thread) -> str:
    """The line of code that the thread is at."""
    frame = sys._current_frames()[thread.ident or 0]
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno)
