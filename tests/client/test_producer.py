"""Producer against a real broker."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as BareConsumer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as LibraryPartition

from skylog import Admin, Producer, SimpleConsumer
from skylog.audit import ProducerAudit
from skylog.client import BufferFullError, Delivery, DeliveryError, Position, SerializeError, TopicNotFoundError
from skylog.errors import ConfigError, SkylogError
from skylog.model import TopicPartition
from skylog.testing import BrokerProcess, consume, wait_until
from skylog.tracing import HeaderPairs
from tests.patience import patience

NOBODY = "127.0.0.1:1"


def test_a_delivery_has_the_position_of_the_message(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer:
        first = producer.send(skylog_topic, b"one")
        assert first.result(10) == Position(skylog_topic, 0, 0)
        assert first.done()
        assert first.exception() is None
        assert producer.send(skylog_topic, b"two").result(10).offset == 1


@dataclasses.dataclass
class Page:
    path: str


def test_bytes_text_and_anything_json_can_be_sent(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer:
        for value in (b"\x00\xff", "tëxt", {"a": [1, None]}, 7, Page("/"), bytearray(b"array"), None):
            producer.send(skylog_topic, value)
    values = [message.value for message in consume(skylog_bootstrap, skylog_topic, 7)]
    assert values == [b"\x00\xff", "tëxt".encode(), b'{"a":[1,null]}', b"7", b'{"path":"/"}', b"array", None]


def test_key_partition_headers_and_time_arrive(
    skylog_bootstrap: str, four_partitions: str, skylog_admin: Admin
) -> None:
    with Producer(skylog_bootstrap) as producer:
        producer.send(
            four_partitions,
            "value",
            key="key",
            partition=2,
            headers=[("trace", b"1"), ("trace", "2"), ("none", None)],
            timestamp_ms=1_700_000_000_123,
        )
    bare = BareConsumer({"bootstrap.servers": skylog_bootstrap, "group.id": "unused"})
    bare.assign([LibraryPartition(four_partitions, 2, 0)])
    message = bare.poll(10)
    bare.close()
    assert message is not None
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"key", b"value", 1_700_000_000_123)
    assert message.headers() == [("trace", b"1"), ("trace", b"2"), ("none", None)]


@pytest.mark.parametrize("name", ["\udcff", "a\0b"])
def test_a_name_of_a_header_that_the_library_cannot_send_is_an_error(
    skylog_bootstrap: str, skylog_topic: str, name: str
) -> None:
    """At the first, the library's process would end; it would cut the second."""
    with Producer(skylog_bootstrap) as producer:
        pairs: list[HeaderPairs] = [{name: b"x"}, [("good", b"x"), (name, None)]]
        for headers in pairs:
            with pytest.raises((UnicodeEncodeError, SerializeError)):
                producer.send(skylog_topic, "value", headers=headers)
            with pytest.raises((UnicodeEncodeError, SerializeError)):
                producer.offer(skylog_topic, b"value", headers=headers)
        producer.send(skylog_topic, "sound", headers={"good": b"x"})
    assert [message.value for message in consume(skylog_bootstrap, skylog_topic, 1)] == [b"sound"]


def test_serializers_are_pluggable_and_see_every_value(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(
        skylog_bootstrap,
        serializer=lambda value: bytes(reversed(value)),
        key_serializer=lambda key: str(key + 1).encode(),
    ) as producer:
        producer.send(skylog_topic, b"abc", key=1)
    [message] = consume(skylog_bootstrap, skylog_topic, 1)
    assert (message.key, message.value) == (b"2", b"cba")


def test_what_no_serializer_can_write_is_refused_with_advice(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer, pytest.raises(SerializeError, match="give the producer a serializer"):
        producer.send(skylog_topic, object())


def murmur2_of_java(data: bytes) -> int:
    """Kafka's murmur2, written down from its definition to check the library's choice."""
    mask, m, h = 0xFFFFFFFF, 0x5BD1E995, 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_a_key_goes_to_the_partition_that_javas_client_chooses(skylog_bootstrap: str, four_partitions: str) -> None:
    with Producer(skylog_bootstrap) as producer:
        for number in range(50):
            key = f"key-{number}".encode()
            chosen = producer.send(four_partitions, b"", key=key).result(10).partition
            assert chosen == (murmur2_of_java(key) & 0x7FFFFFFF) % 4


def test_a_random_partitioner_spreads_one_key(skylog_bootstrap: str, four_partitions: str) -> None:
    with Producer(skylog_bootstrap, partitioner="random") as producer:
        deliveries = [producer.send(four_partitions, b"", key=b"same") for _ in range(200)]
        assert {delivery.result(10).partition for delivery in deliveries} == {0, 1, 2, 3}


def test_a_keyed_partitioner_keeps_a_key_in_one_place(skylog_bootstrap: str, four_partitions: str) -> None:
    with Producer(skylog_bootstrap, partitioner="keyed") as producer:
        deliveries = [producer.send(four_partitions, b"", key=b"same") for _ in range(50)]
        assert len({delivery.result(10).partition for delivery in deliveries}) == 1


def test_a_partitioner_that_returns_an_unknown_partition_is_an_error(
    skylog_bootstrap: str, four_partitions: str
) -> None:
    with (
        Producer(skylog_bootstrap, partitioner=lambda key, count: count) as producer,
        pytest.raises(SkylogError, match=r"chose 4 for key b'k'; .* has 4 partitions, numbered from 0"),
    ):
        producer.send(four_partitions, b"", key=b"k")


def test_a_partitioner_with_an_invalid_topic_is_an_error(skylog_bootstrap: str) -> None:
    with Producer(skylog_bootstrap, partitioner=lambda key, count: 0) as producer, pytest.raises(TopicNotFoundError):
        producer.send("no/topic", b"")


def test_an_unknown_partitioner_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="expected murmur2, keyed, random, or a function"):
        Producer(partitioner="murmur3")


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_level_of_acks_and_every_codec(
    skylog_bootstrap: str, skylog_topic: str, acks: object, compression: str
) -> None:
    with Producer(skylog_bootstrap, acks=acks, compression=compression) as producer:  # type: ignore[arg-type]
        deliveries = [producer.send(skylog_topic, f"message {number}" * 20) for number in range(100)]
        offsets = [delivery.result(10).offset for delivery in deliveries]
    assert offsets == ([-1] * 100 if acks == 0 else list(range(100)))
    assert len(consume(skylog_bootstrap, skylog_topic, 100)) == 100


def test_a_batch_is_stored_when_its_block_ends(skylog_bootstrap: str, skylog_topic: str, skylog_admin: Admin) -> None:
    with Producer(skylog_bootstrap, config={"linger.ms": 60_000}) as producer:
        with producer.batch():
            deliveries = [producer.send(skylog_topic, str(number)) for number in range(10)]
            assert not any(delivery.done() for delivery in deliveries)
        assert all(delivery.done() for delivery in deliveries)
    key = TopicPartition(skylog_topic, 0)
    assert len(skylog_admin.offset_ranges([key])[key]) == 10


def test_a_batch_raises_for_what_was_not_stored(skylog_bootstrap: str, skylog_topic: str) -> None:
    with (
        Producer(skylog_bootstrap) as producer,
        pytest.raises(DeliveryError, match="topics describe"),
        producer.batch(),
    ):
        producer.send(skylog_topic, b"", partition=77)


def test_a_message_that_is_too_large_is_refused_by_name(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer, pytest.raises(DeliveryError, match=skylog_topic) as caught:
        producer.send(skylog_topic, b"x" * 2_000_000)
    assert not caught.value.may_be_stored
    assert 'config={"message.max.bytes": …}' in str(caught.value)
    with Producer(skylog_bootstrap, config={"message.max.bytes": 3_000_000}) as producer:
        refused = producer.send(skylog_topic, b"x" * 2_000_000).exception(20)
    assert f"skylog topics alter {skylog_topic} --config max.message.bytes=…" in str(refused)


def test_without_a_broker_the_delivery_fails_and_a_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING),
        Producer(NOBODY, config={"message.timeout.ms": 500}) as producer,
    ):
        delivery = producer.send("anything", b"")
        with pytest.raises(DeliveryError, match="skylog serve"):
            delivery.result(30)
        assert (producer.delivered_count, producer.failed_count) == (0, 1)
    assert "a message to topic 'anything' was not delivered" in caplog.text


def test_a_result_that_is_not_there_yet_times_out() -> None:
    producer = Producer(NOBODY)
    with pytest.raises(TimeoutError):
        producer.send("anything", b"").result(0.05)
    assert producer.close(timeout_s=0.1) == 1


def test_a_full_queue_takes_no_offer_and_makes_send_wait() -> None:
    producer = Producer(NOBODY, config={"queue.buffering.max.messages": 10})
    assert [producer.offer("anything", b"") for _ in range(12)] == [True] * 10 + [False] * 2
    with pytest.raises(BufferFullError, match="message queue is full"):
        producer.send("anything", b"", wait=False)
    producer.close(timeout_s=0.1)


def test_send_goes_on_when_the_queue_has_room_again(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap, config={"queue.buffering.max.messages": 10}) as producer:
        for number in range(1000):
            producer.send(skylog_topic, str(number))
        assert producer.flush() == 0
        assert producer.delivered_count == 1000


def test_callbacks_run_and_a_failing_one_affects_no_other(
    skylog_bootstrap: str, skylog_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Event()

    def fail(_delivery: Delivery) -> None:
        raise RuntimeError("the application's own mistake")

    with Producer(skylog_bootstrap) as producer:
        delivery = producer.send(skylog_topic, b"")
        delivery.add_done_callback(lambda _: called.set())
        delivery.add_done_callback(fail)
        assert called.wait(10)
        assert producer.send(skylog_topic, b"").result(10).offset == 1
    assert "the application's own mistake" in caplog.text


def test_a_closed_producer_raises(skylog_bootstrap: str, skylog_topic: str) -> None:
    producer = Producer(skylog_bootstrap)
    producer.send(skylog_topic, b"")
    assert producer.close() == 0
    assert producer.delivered_count == 1
    with pytest.raises(SkylogError, match="closed"):
        producer.send(skylog_topic, b"")


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collector: cycles of references are kept."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("is_audited", [False, True], ids=["plain", "audited"])
def test_a_closed_producer_frees_its_client_and_keeps_its_counts(
    skylog_bootstrap: str, skylog_topic: str, is_audited: bool
) -> None:
    for _ in range(2):  # the second one finds that the topic of the audit exists already
        audit = ProducerAudit("web-1") if is_audited else None
        producer = Producer(skylog_bootstrap, audit=audit, partitioner=lambda key, count: None)
        producer.send(skylog_topic, "a").result(20)
        assert producer._engine is not None
        client = weakref.ref(producer._engine.client)
        assert client() is not None
        assert producer.close() == 0
        wait_until(lambda client=client: client() is None, "the client to be freed")  # type: ignore[misc]
        assert (producer.delivered_count, producer.failed_count, producer.close()) == (1, 0, 0)


@pytest.mark.usefixtures("uncollected")
def test_a_deleted_topic_is_not_created_again_by_a_closed_producer(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        admin = Admin(broker.bootstrap)
        with Producer(broker.bootstrap) as producer:
            producer.send("deleted", "a").result(20)
        admin.delete_topics(["deleted"])
        broker.kill()  # clients that lose a connection ask for all of their topics
        broker.start()
        with Producer(broker.bootstrap) as producer:
            producer.send("other", "a").result(20)
            time.sleep(1)  # librdkafka would ask within a few tens of milliseconds
        assert [topic.name for topic in Admin(broker.bootstrap).list_topics()] == ["other"]


def test_many_threads_send_through_one_producer(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer:

        def work(name: int) -> None:
            for number in range(500):
                producer.send(skylog_topic, f"{name}:{number}")

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        assert producer.delivered_count == 2000
    values = [message.text() for message in consume(skylog_bootstrap, skylog_topic, 2000)]
    for name in range(4):
        assert [value for value in values if value.startswith(f"{name}:")] == [f"{name}:{n}" for n in range(500)]


def run_script(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_queued_when_the_process_ends_is_sent(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """
import sys
from skylog import Producer
producer = Producer(sys.argv[1], config={"linger.ms": 60_000})
for number in range(100):
    producer.send(sys.argv[2], str(number))
"""
    run_script(script, skylog_bootstrap, skylog_topic)
    assert len(consume(skylog_bootstrap, skylog_topic, 100)) == 100


def test_a_forked_child_sends_too(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """
import os, sys
from skylog import Producer
producer = Producer(sys.argv[1])
producer.send(sys.argv[2], "parent").result(10)
child = os.fork()
producer.send(sys.argv[2], "child" if child == 0 else "parent again").result(10)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    run_script(script, skylog_bootstrap, skylog_topic)
    values = [message.text() for message in consume(skylog_bootstrap, skylog_topic, 3)]
    assert sorted(values) == ["child", "parent", "parent again"]


def test_messages_outlive_a_broker_that_is_killed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Producer(broker.bootstrap) as producer:
        deliveries = []
        for number in range(3000):
            deliveries.append(producer.send("survivors", str(number), partition=0))
            if number == 1000:
                assert deliveries[0].result(10).offset == 0
                broker.kill()
            if number == 2000:
                broker.start()
        assert [delivery.result(60).offset for delivery in deliveries] == list(range(3000))
        values = [message.text() for message in consume(broker.bootstrap, "survivors", 3000)]
    assert values == [str(number) for number in range(3000)]


def test_a_producer_without_references_still_sends_at_exit(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """
import sys
from skylog import Producer
def send():
    producer = Producer(sys.argv[1], config={"linger.ms": 60_000})
    for number in range(100):
        producer.send(sys.argv[2], str(number))
send()
"""
    run_script(script, skylog_bootstrap, skylog_topic)
    assert len(consume(skylog_bootstrap, skylog_topic, 100)) == 100


def test_a_worker_of_multiprocessing_sends_what_it_has_queued(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """
import multiprocessing, sys
from skylog import Producer
producer = Producer(sys.argv[1], config={"linger.ms": 60_000})
def work():
    for number in range(100):
        producer.send(sys.argv[2], str(number))
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
"""
    run_script(script, skylog_bootstrap, skylog_topic)
    assert len(consume(skylog_bootstrap, skylog_topic, 100)) == 100


def test_a_process_ends_while_a_daemon_thread_sends(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """if True:
        import sys, threading
        from skylog import Producer
        from skylog.client import engine

        def send():
            while True:
                producer.send(sys.argv[2], b"")

        engine.EXIT_S = 1
        producer = Producer(sys.argv[1])
        producer.send(sys.argv[2], b"").result(20)
        for _ in range(4):
            threading.Thread(target=send, daemon=True).start()
    """
    subprocess.run([sys.executable, "-c", script, skylog_bootstrap, skylog_topic], check=True, timeout=40)


@pytest.mark.parametrize("ending", [SystemExit, asyncio.CancelledError])
def test_a_callback_that_ends_its_thread_ends_no_producer(
    skylog_bootstrap: str, skylog_topic: str, ending: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def end(_: Delivery) -> None:
        raise ending

    with Producer(skylog_bootstrap) as producer:
        producer.send(skylog_topic, b"one").add_done_callback(end)
        producer.flush(10)
        assert producer.send(skylog_topic, b"two").result(10).offset == 1
    assert "a callback failed" in caplog.text


def test_a_signal_handler_may_send_while_a_producer_starts(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """if True:
        import faulthandler, signal, sys
        from skylog import Producer
        from skylog.client.connection import Connection

        def started(self, settings, make=Connection.producer):
            if not handled:
                signal.raise_signal(signal.SIGUSR1)
            return make(self, settings)

        def handle(*_):
            handled.append(1)
            producer.send(sys.argv[2], b"handler")

        faulthandler.dump_traceback_later(30, exit=True)
        handled = []
        Connection.producer = started
        signal.signal(signal.SIGUSR1, handle)
        producer = Producer(sys.argv[1])
        producer.send(sys.argv[2], b"main")
        producer.close()
    """
    subprocess.run([sys.executable, "-c", script, skylog_bootstrap, skylog_topic], check=True, timeout=60)
    assert {each.value for each in consume(skylog_bootstrap, skylog_topic, 2)} == {b"handler", b"main"}


def test_no_callback_is_lost_however_late_it_is_added(skylog_bootstrap: str, skylog_topic: str) -> None:
    """The delivery report and `add_done_callback` race at every possible moment."""
    called = 0

    def count(_delivery: Delivery) -> None:
        nonlocal called
        called += 1

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Producer(skylog_bootstrap, config={"linger.ms": 0}) as producer:
            for _ in range(20_000):
                producer.send(skylog_topic, b"").add_done_callback(count)
    finally:
        sys.setswitchinterval(interval_s)
    assert called == 20_000


def test_closing_twice_is_harmless_with_an_audit_and_without_a_broker(tmp_path: Path) -> None:
    producer = Producer(NOBODY, audit=ProducerAudit("tests", journal_dir=tmp_path))
    producer.send("anything", b"")
    assert producer.close(timeout_s=0.2) == 1
    assert producer.close() == 0


def test_a_callback_of_librdkafka_that_fails_does_not_end_the_producer(
    skylog_bootstrap: str, skylog_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail(_statistics: str) -> None:
        failed.set()
        raise RuntimeError("the application's own mistake")

    config = {"statistics.interval.ms": 50, "stats_cb": fail}
    with Producer(skylog_bootstrap, config=config) as producer:
        producer.send(skylog_topic, b"one").result(10)
        assert failed.wait(10)
        assert producer.send(skylog_topic, b"two").result(10).offset == 1
    assert "the application's own mistake" in caplog.text


def test_a_batch_does_not_wait_for_what_other_threads_send(skylog_bootstrap: str, skylog_topic: str) -> None:
    stop = threading.Event()
    with Producer(skylog_bootstrap) as producer:

        def go_on() -> None:
            while not stop.is_set():
                producer.send(skylog_topic, b"x" * 100)

        other = threading.Thread(target=go_on)
        other.start()
        began = time.monotonic()
        with producer.batch():
            delivery = producer.send(skylog_topic, b"mine")
        assert delivery.done()
        assert time.monotonic() - began < patience(10)
        stop.set()
        other.join()


def test_a_partitioner_function_works_while_the_broker_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skylog.client.partitioners.REFRESH_S", 0)
    with (
        BrokerProcess(tmp_path / "data", {"num.partitions": "4"}) as broker,
        Producer(broker.bootstrap, partitioner=lambda key, count: key % count) as producer,
    ):
        assert producer.send("visits", b"", key=3).result(10).partition == 3
        broker.kill()
        delivery = producer.send("visits", b"", key=6)
        broker.start()
        assert delivery.result(30).partition == 2


def test_offer_refuses_a_partitioner_that_may_wait(skylog_bootstrap: str, skylog_topic: str) -> None:
    with (
        Producer(skylog_bootstrap, partitioner=lambda key, count: 0) as producer,
        pytest.raises(ConfigError, match="use `send` instead of `offer`"),
    ):
        producer.offer(skylog_topic, b"")


@pytest.mark.parametrize("acks", [2, -1, "1", "leader"])
def test_invalid_acks_are_refused(acks: object) -> None:
    with pytest.raises(ConfigError, match="expected 'all', 1 or 0"):
        Producer(acks=acks)  # type: ignore[arg-type]


def test_settings_on_how_to_reach_a_cluster_go_to_every_client(skylog_bootstrap: str) -> None:
    with pytest.raises(ConfigError, match="librdkafka refuses the configuration"):
        SimpleConsumer("topic", bootstrap=skylog_bootstrap, config={"security.protocol": "nonsense"})


def test_a_partitioner_function_may_leave_the_choice(skylog_bootstrap: str, four_partitions: str) -> None:
    """As in docs/clients.md."""

    def by_organisation(key: int | None, partition_count: int) -> int | None:
        return None if key is None else key % partition_count

    with Producer(skylog_bootstrap, partitioner=by_organisation) as producer:
        assert producer.send(four_partitions, b"v", key=50).result(20).partition == 2
        assert producer.send(four_partitions, b"v").result(20).partition in range(4)


def test_a_queue_that_is_full_at_once_is_not_said_to_have_been_full_for_a_time() -> None:
    with Producer("127.0.0.1:1") as producer:
        assert "the message queue is full (" in str(producer.buffer_full(0))
        assert "the message queue has been full for 60 s (" in str(producer.buffer_full(60))


class OfConfluentKafka:
    """A message or an error as a delivery report gets it while the exception of a fatal error is pending."""

    def __init__(self) -> None:
        self.calls = 0

    def _called(self) -> int:
        self.calls += 1
        if self.calls == 1:
            raise SystemError("<method 'partition' of …> returned a result with an exception set")
        return 3

    partition = offset = _called


@pytest.mark.parametrize(
    "error", [None, LibraryError(LibraryError.TOPIC_AUTHORIZATION_FAILED)], ids=["stored", "rejected"]
)
def test_a_report_that_comes_with_a_fatal_error_is_the_outcome(
    skylog_bootstrap: str, error: LibraryError | None
) -> None:
    with Producer(skylog_bootstrap) as producer:
        sent = producer.send("letters", "a")
        producer.flush()
        assert producer._engine is not None
        before = producer.delivered_count, producer.failed_count
        delivery, message = Delivery(producer._engine, "letters"), OfConfluentKafka()
        outcomes: list[Delivery] = []
        delivery.add_done_callback(outcomes.append)
        delivery(error, message)  # type: ignore[arg-type]
        assert outcomes == [delivery]
        counts = producer.delivered_count - before[0], producer.failed_count - before[1]
        if error is None:
            assert (delivery.result(0), counts) == (Position("letters", 3, 3), (1, 0))
        else:
            assert ("letters-3" in str(delivery.exception(0)), counts) == (True, (0, 1))
        assert sent.result(0).topic == "letters"
