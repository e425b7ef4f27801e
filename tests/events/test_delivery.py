"""Delivery of events to a real broker, which is sometimes down."""

from __future__ import annotations

import logging
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, generate_latest

from skylog.events import EventLog
from tests.broker.process import BrokerProcess, until
from tests.patience import patience

from .conftest import MakeEvents, events_in, messages_in, names_in


def test_an_event_arrives_with_its_envelope_key_and_time(broker: BrokerProcess, events: EventLog, topic: str) -> None:
    before_ms = time.time_ns() // 1_000_000
    with events.request():
        events.fire("post.create", {"id": 7, "created_at": 1_700_000_000}, id=42, title="Hello")
    assert events.flush() == 0
    (message,) = messages_in(broker.bootstrap, topic)
    (event,) = events_in(broker.bootstrap, topic)
    assert message.key() == b"7"
    assert before_ms <= message.timestamp()[1] <= time.time_ns() // 1_000_000
    assert event["timestamp"] == message.timestamp()[1] / 1000
    assert event["user"] == {"id": 7, "created_at": 1_700_000_000.0}
    assert (event["event"], event["attributes"]) == ("post.create", {"id": 42, "title": "Hello"})
    assert event["application"] == "tests"
    assert events.stats().delivered == 1


def test_many_events_arrive_once_and_in_order(broker: BrokerProcess, events: EventLog, topic: str) -> None:
    for request in range(50):
        with events.request():
            for step in range(10):
                events.fire(f"{request}.{step}")
    assert events.flush() == 0
    assert names_in(broker.bootstrap, topic) == [f"{request}.{step}" for request in range(50) for step in range(10)]


def test_without_a_broker_events_wait_then_drop_and_those_that_waited_arrive_later(
    make_events: MakeEvents, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    settings = {"queue.buffering.max.messages": 100, "reconnect.backoff.max.ms": 200}
    events = make_events(broker.bootstrap, settings, application="outage")
    events.fire("before")
    assert events.flush() == 0
    broker.kill()

    for number in range(150):
        with events.request():
            events.fire(f"during.{number}")
    stats = events.stats()
    assert (stats.fired, stats.delivered, stats.buffered) == (151, 1, 100)
    assert stats.dropped["buffer_full"] == 50
    assert f"dropped events for topic {topic}: 1 buffer_full" in caplog.text
    scraped = generate_latest(REGISTRY).decode()
    labels = f'application="outage",topic="{topic}"'
    assert f"skylog_events_fired_total{{{labels}}} 151.0" in scraped
    assert f"skylog_events_delivered_total{{{labels}}} 1.0" in scraped
    assert f"skylog_events_buffered{{{labels}}} 100.0" in scraped
    labels = f'application="outage",reason="REASON",topic="{topic}"'
    assert f"skylog_events_dropped_total{{{labels}}} 50.0".replace("REASON", "buffer_full") in scraped
    assert f"skylog_events_dropped_total{{{labels}}} 0.0".replace("REASON", "unencodable") in scraped

    with broker:
        until(lambda: events.stats().buffered == 0, "the buffered events")
        assert names_in(broker.bootstrap, topic) == ["before", *(f"during.{number}" for number in range(100))]
        assert events.stats().delivered == 101


def test_firing_takes_no_longer_without_a_broker(
    broker: BrokerProcess, make_events: MakeEvents, tmp_path: Path
) -> None:
    """Neither with room in the buffer nor without."""
    reachable = make_events(broker.bootstrap)
    gone = BrokerProcess(tmp_path / "data").start()
    gone.kill()
    lonely = make_events(gone.bootstrap, {"queue.buffering.max.messages": 1000, "message.timeout.ms": 2000})
    with_s = median_fire_s(reachable)
    assert median_fire_s(lonely) < 3 * with_s + 50e-6
    assert lonely.stats().buffered == 1000
    assert lonely.stats().dropped["buffer_full"] == 3000
    until(lambda: lonely.stats().dropped["undelivered"] == 1000, "the producer to give up")


def median_fire_s(events: EventLog) -> float:
    seconds = []
    for _ in range(4000):
        began = time.perf_counter()
        events.fire("page.view", 7, path="/")
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


EXIT = """
import sys, threading
from skylog.client import Producer
from skylog.events import EventLog
producer = Producer(sys.argv[1], config={"linger.ms": 60_000})
events = EventLog(producer, topic=sys.argv[2])
for number in range(500):
    events.fire(f"exit.{number}")
fired = threading.Event()
def answer_forever():
    with events.request():
        events.fire("unanswered")
        fired.set()
        threading.Event().wait()
threading.Thread(target=answer_forever, daemon=True).start()
fired.wait()
with events.request():
    events.fire("failing")
    raise SystemExit("as a failing script does")
"""


def test_what_is_buffered_is_sent_when_the_process_ends(broker: BrokerProcess, topic: str) -> None:
    done = subprocess.run([sys.executable, "-c", EXIT, broker.bootstrap, topic], capture_output=True, timeout=60)
    assert done.returncode == 1
    assert names_in(broker.bootstrap, topic) == [*(f"exit.{number}" for number in range(500)), "failing", "unanswered"]


LOST = """
import sys
from skylog.client import Producer
from skylog.events import EventLog
for topic in ("blog_log", "shop_log"):
    EventLog(Producer("127.0.0.1:1"), topic=topic, flush_timeout_s=0.2).fire("a")
"""


def test_what_cannot_be_sent_at_exit_is_logged_and_does_not_delay_it_further() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, timeout=90, text=True)
    assert done.returncode == 0
    for topic in ("blog_log", "shop_log"):
        assert f"events for topic {topic} that were not delivered within 0.2 s of closing: 1" in done.stderr
    assert time.monotonic() - began < patience(15)  # the producers would wait for half a minute


FORKS = 20
FORK = """
import os, signal, sys, threading
from skylog.client import Producer
from skylog.events import EventLog

events = EventLog(Producer(sys.argv[1]), topic=sys.argv[2])
has_forked = threading.Event()

def fire_on():
    step = 0
    while not has_forked.wait(0.001):
        events.fire(f"parent.{step}")
        step += 1
    events.fire(f"parents: {step}")

other = threading.Thread(target=fire_on)
other.start()
children = []
for number in range(int(sys.argv[3])):
    events.fire("fork")
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        with events.request():
            for step in range(10):
                events.fire(f"child.{number}.{step}")
        sys.exit(0 if events.stats().fired == 10 else 1)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
has_forked.set()
other.join()
sys.exit(f"exit codes: {codes}" if any(codes) else 0)
"""


def test_workers_that_are_forked_with_events_in_flight_send_only_their_own(broker: BrokerProcess, topic: str) -> None:
    """Also while another thread of the parent fires, and while librdkafka connects."""
    command = [sys.executable, "-c", FORK, broker.bootstrap, topic, str(FORKS)]
    done = subprocess.run(command, capture_output=True, timeout=patience(120), text=True)
    assert done.returncode == 0, done.stderr
    names = names_in(broker.bootstrap, topic)
    for number in range(FORKS):
        mine = [name for name in names if name.startswith(f"child.{number}.")]
        assert mine == [f"child.{number}.{step}" for step in range(10)]
    steps = [name for name in names if name.startswith("parent.")]
    assert steps == [f"parent.{step}" for step in range(len(steps))]
    assert f"parents: {len(steps)}" in names
    assert names.count("fork") == FORKS


def test_an_event_that_is_too_large_is_refused_and_counted(
    broker: BrokerProcess, events: EventLog, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        events.fire("large", text=os.urandom(1_000_000).hex())
        events.fire("small")
    assert events.flush() == 0
    assert names_in(broker.bootstrap, topic) == ["small"]
    assert events.stats().dropped["refused"] == 1
    assert "1 refused" in caplog.text
