"""Creating librdkafka clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
import sys
import time
from threading import Thread

import pytest
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException

from skylog import Admin, AsyncProducer, BrokerUnreachableError, Consumer, Producer
from skylog.client import Connection
from skylog.testing import wait_until
from tests.patience import patience


class Interrupting(str):
    """The name of a setting that raises SIGINT when it is read."""

    def __str__(self) -> str:
        signal.raise_signal(signal.SIGINT)
        return "group.id"


def test_ctrl_c_while_a_client_is_made_is_ctrl_c_and_nothing_else() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Connection("127.0.0.1:1").consumer({Interrupting("group.id"): "g"})
    assert signal.getsignal(signal.SIGINT) is before


def test_a_consumer_that_reaches_no_broker_says_so_once_and_then_at_intervals(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]

    with Consumer("letters", "readers", "127.0.0.1:1") as consumer:
        wait_until(lambda: consumer.consume(timeout_s=0.1) or lines(), "a warning")
        consumer.consume(timeout_s=5)
        (line,) = lines()
        assert line.startswith("no broker can be reached at 127.0.0.1:1 (")
        assert line.endswith("refused); group 'readers' waits")
        monkeypatch.setattr("skylog.client.connection._WARN_EVERY_S", 0)
        wait_until(lambda: consumer.consume(timeout_s=0.1) or len(lines()) > 1, "another warning")


class AnsweringClient:
    """Stands for a client of librdkafka: whether a broker answers it now."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers

    def list_topics(self, timeout: float) -> None:
        if not self.answers:
            raise KafkaException(LibraryError(LibraryError._TIMED_OUT))


REFUSED = LibraryError(LibraryError._TRANSPORT, "a:1/bootstrap: Connect to ipv4#1.2.3.4:1 failed: Refused (after 0ms)")
ALL_DOWN = LibraryError(LibraryError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def outage(
    client: AnsweringClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, every_s: int
) -> list[int]:
    """Report once that all brokers are down, then only failed attempts; return the seconds of the warnings."""
    now = [1000.0]
    monkeypatch.setattr("skylog.client.connection.time.monotonic", lambda: now[0])
    connection = Connection("a:1")
    connection.warn_as("something waits")
    connection._errors.extend([REFUSED, ALL_DOWN])
    warned = []
    for second in range(0, 200, every_s):
        now[0] = 1000.0 + second
        connection.take_errors(client, warns=True)  # type: ignore[arg-type]
        if any(each.levelno == logging.WARNING for each in caplog.records):
            warned.append(second)
        caplog.clear()
        connection._errors.append(REFUSED)
    return warned


@pytest.mark.parametrize(("every_s", "warned"), [(1, [1, 61, 121, 181]), (30, [30, 90, 150])])
def test_an_outage_is_repeated_though_librdkafka_reports_only_failed_attempts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, every_s: int, warned: list[int]
) -> None:
    """librdkafka sometimes reports just once that all brokers are down. A host that drops packets fails every 30 s."""
    assert outage(AnsweringClient(answers=False), caplog, monkeypatch, every_s) == warned


def test_attempts_at_one_broker_that_fail_are_no_outage_while_another_one_answers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outage(AnsweringClient(answers=True), caplog, monkeypatch, 1) == []


def test_a_server_of_another_protocol_is_recognized() -> None:
    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=answer, daemon=True).start()
        with pytest.raises(BrokerUnreachableError, match="what listens there does not speak the Kafka protocol"):
            Admin(f"127.0.0.1:{listener.getsockname()[1]}").list_topics()


INTERRUPTED = """
import os, signal, threading
from skylog import Consumer
config = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 5}  # errors and log lines come all the time
with Consumer("letters", "readers", "127.0.0.1:1", config=config) as consumer:
    for _ in range(20):
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                consumer.consume(timeout_s=0.2)
        except KeyboardInterrupt:
            pass
"""


def test_ctrl_c_while_no_broker_answers_is_ctrl_c_and_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def test_a_producer_that_reaches_no_broker_says_that_messages_wait(caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer("127.0.0.1:1")
    producer.send("letters", "a")
    wait_until(lambda: "messages wait in the queue" in caplog.text, "a warning")
    assert [each.levelno for each in caplog.records if "wait in the queue" in each.getMessage()] == [logging.WARNING]
    assert producer.close(0.1) == 1


def test_a_block_that_an_exception_leaves_does_not_wait_for_a_broker_for_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without an exception, the block waits until every message has a result: up to `message.timeout.ms`."""
    monkeypatch.setattr("skylog.client.producer.EXIT_S", 0.1)
    monkeypatch.setattr("skylog.client.aio.EXIT_S", 0.1)

    async def run() -> None:
        async with AsyncProducer("127.0.0.1:1") as producer:
            await asyncio.wait_for(producer.send("letters", "a"), 0.1)

    began = time.monotonic()
    producer = Producer("127.0.0.1:1")
    producer.send("letters", "a")
    producer.__exit__(KeyboardInterrupt)
    assert producer.failed_count == 1
    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert time.monotonic() - began < patience(20)


INTERRUPTED_CLOSE = """
import os, signal, threading
from skylog import Producer
producer = Producer("127.0.0.1:1")
producer.send("letters", "a")
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
producer.close()
"""


def test_ctrl_c_while_a_producer_closes_gives_its_messages_up() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_CLOSE], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGINT
    assert "a message to topic 'letters' was not delivered" in done.stderr
    assert "before the process exited" not in done.stderr  # what the exit logs after another wait
