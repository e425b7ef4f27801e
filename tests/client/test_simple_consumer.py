"""SimpleConsumer against a real broker."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from skylog import Admin, Producer, SimpleConsumer
from skylog.client import BrokerUnreachableError, DeserializeError, OffsetOutOfRangeError, TopicNotFoundError
from skylog.client.serializers import from_json, from_text
from skylog.errors import ConfigError, SkylogError
from skylog.testing import BrokerProcess, wait_until


def test_the_offset_is_always_that_of_the_next_message(skylog_bootstrap: str, letters: str) -> None:
    with SimpleConsumer(letters, 0, 0, skylog_bootstrap) as consumer:
        assert [message.text() for message in consumer.consume(max_messages=2)] == ["a", "b"]
        assert consumer.offset == 2
        for message in consumer:
            assert consumer.offset == message.offset + 1
            if message.offset == 3:
                break
        assert [message.text() for message in consumer.consume()] == ["e"]
        assert consumer.offset == 5
        assert consumer.consume(timeout_s=0.1) == []
        assert consumer.offset == 5


def test_assigning_to_the_offset_rewinds_even_while_iterating(skylog_bootstrap: str, letters: str) -> None:
    with SimpleConsumer(letters, 0, 0, skylog_bootstrap) as consumer:
        seen = []
        for message in consumer:
            seen.append(message.text())
            if seen == ["a", "b", "c"]:
                consumer.offset = 1
            if len(seen) == 6:
                break
        assert seen == ["a", "b", "c", "b", "c", "d"]


def test_earliest_latest_and_a_time_are_places_too(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer:
        for number in range(5):
            producer.send(skylog_topic, str(number), timestamp_ms=1_700_000_000_000 + number * 1000)
    with SimpleConsumer(skylog_topic, bootstrap=skylog_bootstrap, offset="latest") as consumer:
        assert consumer.offset == 5
        consumer.offset = "earliest"
        assert consumer.offset == 0
        consumer.seek_to_time(1_700_000_002_500)
        assert consumer.offset == 3
        assert [message.text() for message in consumer.consume()] == ["3", "4"]
        consumer.seek_to_time(1_800_000_000_000)
        assert consumer.offset == 5


def test_iteration_waits_at_the_end_of_the_log(skylog_bootstrap: str, letters: str) -> None:
    seen: list[str] = []
    caught_up = threading.Event()

    def read() -> None:
        with SimpleConsumer(letters, 0, "latest", skylog_bootstrap) as consumer:
            caught_up.set()
            seen.extend(message.text() for message in itertools.islice(consumer, 2))

    reader = threading.Thread(target=read)
    reader.start()
    assert caught_up.wait(10)
    with Producer(skylog_bootstrap) as producer:
        producer.send(letters, "f", partition=0).result(10)
        producer.send(letters, "g", partition=0)
    reader.join(20)
    assert seen == ["f", "g"]


def test_an_offset_out_of_range_is_an_error_that_names_the_range(skylog_bootstrap: str, letters: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"{letters}-0 has no offset 6: it holds 0 up to 5") as caught:
        SimpleConsumer(letters, 0, 6, skylog_bootstrap)
    assert (caught.value.offset, caught.value.start_offset, caught.value.end_offset) == (6, 0, 5)


def test_retention_past_the_position_of_a_consumer_is_an_error(
    skylog_bootstrap: str, letters: str, skylog_admin: Admin
) -> None:
    with SimpleConsumer(letters, 0, 1, skylog_bootstrap) as consumer:
        skylog_admin.delete_records(letters, {0: 3})
        consumer._place(1)  # as if it had been checked just before the records were deleted
        for _ in range(2):  # until the application seeks
            with pytest.raises(OffsetOutOfRangeError, match="has no offset 1: it holds 3 up to 5"):
                wait_until(lambda: consumer.consume(), "an error")
        consumer.offset = "earliest"
        assert [message.text() for message in consumer.consume()] == ["d", "e"]


def test_a_topic_or_partition_that_is_not_there_is_named(skylog_bootstrap: str, letters: str) -> None:
    with pytest.raises(TopicNotFoundError, match=f"did you mean {letters}"):
        SimpleConsumer(letters[:-1], 0, 0, skylog_bootstrap)
    with pytest.raises(SkylogError, match="has no partition 3: it has 1, numbered from 0"):
        SimpleConsumer(letters, 3, 0, skylog_bootstrap)


def test_without_a_broker_the_error_explains_what_to_do() -> None:
    with pytest.raises(BrokerUnreachableError, match="skylog serve"):
        SimpleConsumer("letters", bootstrap="127.0.0.1:1")


def test_a_deserializer_makes_the_value_and_its_failure_names_the_message(
    skylog_bootstrap: str, skylog_topic: str
) -> None:
    with Producer(skylog_bootstrap) as producer:
        producer.send(skylog_topic, {"a": 1})
        producer.send(skylog_topic, None, key="gone")
        producer.send(skylog_topic, "{no json")
    with SimpleConsumer(skylog_topic, bootstrap=skylog_bootstrap, deserializer=from_json) as consumer:
        good, tombstone, bad = consumer.consume()
        assert good.value == {"a": 1}
        assert tombstone.value is None
        with pytest.raises(DeserializeError, match=rf"value of {skylog_topic}-0 at offset 2.*skylog tail"):
            bad.value  # noqa: B018
        assert bad.raw.value() == b"{no json"
    with SimpleConsumer(skylog_topic, bootstrap=skylog_bootstrap, deserializer=from_text) as consumer:
        assert consumer.consume()[0].value == '{"a":1}'


def test_a_consumer_goes_on_after_a_broker_was_killed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Producer(broker.bootstrap) as producer:
        producer.send("survivors", "before").result(10)
        with SimpleConsumer("survivors", 0, 0, broker.bootstrap) as consumer:
            messages = iter(consumer)
            assert next(messages).text() == "before"
            broker.kill()
            delivery = producer.send("survivors", "after")
            broker.start()
            assert delivery.result(30).offset == 1
            assert next(messages).text() == "after"
            assert consumer.offset == 2


def test_an_invalid_offset_and_a_closed_consumer_are_refused(skylog_bootstrap: str, letters: str) -> None:
    with pytest.raises(ConfigError, match="expected a number, 'earliest' or 'latest'"):
        SimpleConsumer(letters, 0, "smallest", skylog_bootstrap)  # type: ignore[arg-type]
    consumer = SimpleConsumer(letters, 0, 0, skylog_bootstrap)
    consumer.close()
    with pytest.raises(SkylogError, match="closed"):
        consumer.consume()


def test_a_tombstone_has_no_text(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer:
        producer.send(skylog_topic, None, key="gone")
    with SimpleConsumer(skylog_topic, 0, 0, skylog_bootstrap) as consumer:
        [message] = consumer.consume()
    assert message.value is None
    with pytest.raises(DeserializeError, match="a tombstone"):
        message.text()
