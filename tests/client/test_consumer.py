"""Consumer against a real broker: what a group delivers, and what it has committed afterwards."""

from __future__ import annotations

import itertools
import logging
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer as BareProducer

from skylog import Admin, Consumer, ConsumerGroups, Producer
from skylog.client import BrokerUnreachableError, OffsetOutOfRangeError, membership
from skylog.client.serializers import from_json
from skylog.errors import ConfigError, SkylogError
from skylog.model import TopicPartition
from skylog.testing import BrokerProcess, wait_until
from tests.patience import patience
from tests.present import present


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """What the group has committed, by partition of its only topic."""
    try:
        [found] = ConsumerGroups(bootstrap).describe_groups([group])
    except SkylogError:
        return {}
    return {
        row.partition.partition: row.committed_offset for row in found.partitions if row.committed_offset is not None
    }


def take(consumer: Consumer, count: int) -> list[str]:
    return [message.text() for message in itertools.islice(consumer, count)]


def test_a_group_starts_at_the_beginning_and_goes_on_where_it_was(skylog_bootstrap: str, letters: str) -> None:
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        assert take(consumer, 3) == ["a", "b", "c"]
    assert committed(skylog_bootstrap, letters) == {0: 3}
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        assert take(consumer, 2) == ["d", "e"]


def test_a_message_whose_handling_failed_comes_again(skylog_bootstrap: str, letters: str) -> None:
    def handle() -> None:
        with Consumer(letters, letters, skylog_bootstrap) as consumer:
            for message in consumer:
                if message.text() == "c":
                    raise RuntimeError("cannot handle c")

    with pytest.raises(RuntimeError, match="cannot handle c"):
        handle()
    assert committed(skylog_bootstrap, letters) == {0: 2}
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        assert take(consumer, 3) == ["c", "d", "e"]


def test_a_list_whose_handling_failed_comes_again_as_a_whole(skylog_bootstrap: str, letters: str) -> None:
    def handle() -> None:
        with Consumer(letters, letters, skylog_bootstrap) as consumer:
            wait_until(lambda: consumer.consume(max_messages=2), "the first two messages")
            assert [message.text() for message in consumer.consume(max_messages=2)] == ["c", "d"]
            raise RuntimeError("cannot handle c and d")

    with pytest.raises(RuntimeError):
        handle()
    assert committed(skylog_bootstrap, letters) == {0: 2}


def test_a_group_that_starts_at_the_latest_sees_only_what_comes(skylog_bootstrap: str, letters: str) -> None:
    with (
        Consumer(letters, letters, skylog_bootstrap, start="latest") as consumer,
        Producer(skylog_bootstrap) as producer,
    ):
        wait_until(lambda: consumer.consume(timeout_s=0.1) or consumer.assignment, "an assignment")
        assert consumer.consume(timeout_s=0.5) == []
        producer.send(letters, "f", partition=0).result(10)
        assert take(consumer, 1) == ["f"]


def test_auto_commits_come_by_themselves(skylog_bootstrap: str, letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skylog.client.consumer.COMMIT_EVERY_S", 0.1)
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        assert take(consumer, 4) == ["a", "b", "c", "d"]

        def stop_once_committed() -> None:
            wait_until(lambda: committed(skylog_bootstrap, letters) == {0: 5}, "a commit")
            consumer.stop()

        stopper = threading.Thread(target=stop_once_committed)
        stopper.start()
        assert [message.text() for message in consumer] == ["e"]
        stopper.join()


def test_manual_commits_are_the_only_ones(skylog_bootstrap: str, letters: str) -> None:
    with Consumer(letters, letters, skylog_bootstrap, commit="manual") as consumer:
        for message in consumer:
            if message.text() == "b":
                consumer.commit()
            if message.text() == "d":
                break
    assert committed(skylog_bootstrap, letters) == {0: 2}


def test_batch_commits_follow_each_list(skylog_bootstrap: str, letters: str) -> None:
    with Consumer(letters, letters, skylog_bootstrap, commit="batch") as consumer:
        first = wait_until(lambda: consumer.consume(max_messages=3), "messages")
        assert len(first) == 3
        assert committed(skylog_bootstrap, letters) == {}
        consumer.consume(max_messages=1)
        assert committed(skylog_bootstrap, letters) == {0: 3}


def test_a_consumer_rewinds_to_the_start_an_offset_and_a_time(skylog_bootstrap: str, skylog_topic: str) -> None:
    with Producer(skylog_bootstrap) as producer:
        for number in range(5):
            producer.send(skylog_topic, str(number), timestamp_ms=1_700_000_000_000 + number * 1000)
    with Consumer(skylog_topic, skylog_topic, skylog_bootstrap) as consumer:
        assert take(consumer, 2) == ["0", "1"]
        consumer.rewind()
        assert take(consumer, 3) == ["0", "1", "2"]
        consumer.seek(skylog_topic, 0, 1)
        assert consumer.positions == {TopicPartition(skylog_topic, 0): 1}
        assert take(consumer, 1) == ["1"]
        consumer.seek_to_time(1_700_000_002_500)
        assert take(consumer, 2) == ["3", "4"]
        consumer.seek(skylog_topic, 0, 1)
    assert committed(skylog_bootstrap, skylog_topic) == {0: 1}


def test_a_partition_of_another_member_cannot_be_moved(skylog_bootstrap: str, letters: str) -> None:
    with (
        Consumer(letters, letters, skylog_bootstrap) as consumer,
        pytest.raises(SkylogError, match=f"other-3 is not assigned to this member of group .*, only {letters}-0"),
    ):
        consumer.seek("other", 3, 0)


def test_offsets_stored_beside_the_result_make_every_message_count_once(
    skylog_bootstrap: str, skylog_topic: str, tmp_path: Path
) -> None:
    """The recipe of docs/clients.md, with a failure after the results were made and before they were stored."""
    with Producer(skylog_bootstrap) as producer:
        for number in range(1, 11):
            producer.send(skylog_topic, {"amount": number})
    database = sqlite3.connect(tmp_path / "totals.db", isolation_level=None)
    database.execute("CREATE TABLE offsets (partition TEXT PRIMARY KEY, next INTEGER)")
    database.execute("CREATE TABLE total (amount INTEGER)")
    database.execute("INSERT INTO total VALUES (0)")

    def stored_offset(partition: TopicPartition) -> int | None:
        row = database.execute("SELECT next FROM offsets WHERE partition = ?", [str(partition)]).fetchone()
        return row[0] if row else None

    def add_up(fail_at: int | None) -> None:
        with Consumer(
            skylog_topic, skylog_topic, skylog_bootstrap, start=stored_offset, deserializer=from_json
        ) as consumer:
            for message in consumer:
                with database:
                    database.execute("BEGIN IMMEDIATE")
                    if message.offset < (stored_offset(message.topic_partition) or 0):
                        continue
                    database.execute("UPDATE total SET amount = amount + ?", [present(message.value)["amount"]])
                    if message.offset == fail_at:
                        raise RuntimeError("the power went off")
                    where = str(message.topic_partition)
                    database.execute("REPLACE INTO offsets VALUES (?, ?)", [where, message.offset + 1])
                if message.offset == 9:
                    return

    for fail_at in (4, 9):
        with pytest.raises(RuntimeError):
            add_up(fail_at)
    add_up(None)
    assert database.execute("SELECT amount FROM total").fetchone() == (55,)


def test_two_members_share_the_partitions_and_one_takes_over(skylog_bootstrap: str, four_partitions: str) -> None:
    first = Consumer(four_partitions, four_partitions, skylog_bootstrap)
    second = Consumer(four_partitions, four_partitions, skylog_bootstrap)

    def both_have_two() -> bool:
        first.consume(timeout_s=0.05)
        second.consume(timeout_s=0.05)
        return len(first.assignment) == len(second.assignment) == 2

    wait_until(both_have_two, "two partitions each", seconds=30)
    second.close()
    wait_until(lambda: first.consume(timeout_s=0.05) or len(first.assignment) == 4, "all partitions", seconds=30)
    with Producer(skylog_bootstrap) as producer:
        for partition in range(4):
            producer.send(four_partitions, str(partition), partition=partition)
    assert sorted(take(first, 4)) == ["0", "1", "2", "3"]
    first.close()
    assert committed(skylog_bootstrap, four_partitions) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_rebalance_commits_what_is_done_so_that_nothing_comes_twice(
    skylog_bootstrap: str, four_partitions: str
) -> None:
    with Producer(skylog_bootstrap) as producer:
        for number in range(400):
            producer.send(four_partitions, str(number), partition=number % 4)
    first = Consumer(four_partitions, four_partitions, skylog_bootstrap)
    second = Consumer(four_partitions, four_partitions, skylog_bootstrap)
    seen: list[str] = []

    def both_read() -> bool:
        for consumer in (first, second):
            seen.extend(message.text() for message in consumer.consume(max_messages=20, timeout_s=0.05))
        return len(seen) >= 400 and len(first.assignment) == len(second.assignment) == 2

    wait_until(both_read, "400 messages and two members", seconds=30)
    first.close()
    second.close()
    assert sorted(map(int, seen)) == list(range(400))


def test_eager_rebalancing_works_too(skylog_bootstrap: str, four_partitions: str) -> None:
    with Producer(skylog_bootstrap) as producer:
        for number in range(8):
            producer.send(four_partitions, str(number), partition=number % 3)
    config = {"partition.assignment.strategy": "range"}
    with Consumer(four_partitions, four_partitions, skylog_bootstrap, config=config) as consumer:
        assert sorted(take(consumer, 8)) == list("01234567")
        consumer.seek(four_partitions, 1, 2)
        assert take(consumer, 1) == ["7"]
    assert committed(skylog_bootstrap, four_partitions) == {0: 3, 1: 3, 2: 2}


def test_retention_that_overtook_a_group_is_an_error_that_names_it(
    skylog_bootstrap: str, letters: str, skylog_admin: Admin
) -> None:
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        assert take(consumer, 1) == ["a"]
    skylog_admin.delete_records(letters, {0: 3})
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        with pytest.raises(OffsetOutOfRangeError, match=f"{letters}-0 has no offset 1: it holds 3 up to 5"):
            take(consumer, 1)
        consumer.seek(letters, 0, 3)
        assert take(consumer, 2) == ["d", "e"]


def test_a_topic_that_is_not_there_yet_is_waited_for(
    skylog_bootstrap: str, skylog_topic: str, skylog_admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    later = f"{skylog_topic}-later"
    config = {"topic.metadata.refresh.interval.ms": 200}
    with caplog.at_level(logging.WARNING), Consumer(later, later, skylog_bootstrap, config=config) as consumer:
        wait_until(lambda: consumer.consume(timeout_s=0.1) or "waits for it" in caplog.text, "a warning")
        skylog_admin.create_topic(later)
        with Producer(skylog_bootstrap) as producer:
            producer.send(later, "at last")
        assert take(consumer, 1) == ["at last"]
    skylog_admin.delete_topics([later])


def test_several_topics_and_patterns_can_be_read(skylog_bootstrap: str, letters: str, skylog_admin: Admin) -> None:
    skylog_admin.create_topic(f"{letters}-more")
    with Producer(skylog_bootstrap) as producer:
        producer.send(f"{letters}-more", "f")
    with Consumer(f"^{letters}.*", letters, skylog_bootstrap) as consumer:
        assert sorted(take(consumer, 6)) == list("abcdef")
    skylog_admin.delete_topics([f"{letters}-more"])


@pytest.mark.parametrize("options", [{"commit": "sometimes"}, {"start": "smallest"}])
def test_a_wrong_option_is_refused_with_the_right_ones(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        Consumer("topic", "group", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("topics", "group"), [("topic", ""), ([], "group"), ("", "group")])
def test_a_consumer_without_a_group_or_a_topic_is_refused(topics: str, group: str) -> None:
    with pytest.raises(ConfigError, match="needs a group name"):
        Consumer(topics, group)


def test_a_setting_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(ConfigError, match="no\\.such\\.setting"):
        Consumer("topic", "group", config={"no.such.setting": 1})


def test_a_closed_consumer_raises(skylog_bootstrap: str, letters: str) -> None:
    consumer = Consumer(letters, letters, skylog_bootstrap)
    consumer.close()
    with pytest.raises(SkylogError, match="closed"):
        consumer.consume()


def test_stop_ends_the_iteration_from_another_thread(skylog_bootstrap: str, letters: str) -> None:
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        for message in consumer:
            if message.text() == "e":
                threading.Timer(0.1, consumer.stop).start()
    assert committed(skylog_bootstrap, letters) == {0: 5}


def test_a_group_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("survivors", "before").result(10)
            with Consumer("survivors", "group", broker.bootstrap) as consumer:
                assert take(consumer, 1) == ["before"]
                broker.kill()
                delivery = producer.send("survivors", "after")
                broker.start()
                delivery.result(30)
                assert take(consumer, 1)[-1] == "after"
        assert committed(broker.bootstrap, "group") == {0: 2}


def test_what_any_client_has_sent_is_read_as_it_was(skylog_bootstrap: str, skylog_topic: str) -> None:
    bare = BareProducer({"bootstrap.servers": skylog_bootstrap})
    bare.produce(skylog_topic, b"v", b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_000)
    bare.flush()
    with Consumer(skylog_topic, skylog_topic, skylog_bootstrap) as consumer:
        message = next(iter(consumer))
    assert (message.topic, message.partition, message.offset) == (skylog_topic, 0, 0)
    assert (message.key, message.value, message.headers) == (b"k", b"v", (("h", b"1"), ("h", None)))
    assert present(message.time).isoformat() == "2023-11-14T22:13:20+00:00"
    assert repr(message) == f"<Message {skylog_topic}-0 at 0: key b'k', value b'v'>"


class Interrupted(BaseException):
    """Like KeyboardInterrupt, which may come at any moment."""


@pytest.mark.parametrize("where", ["poll", "consume"])
def test_ctrl_c_in_the_middle_of_a_fill_loses_nothing(
    skylog_bootstrap: str, letters: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The messages have left librdkafka and have not reached the inbox."""
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        assert take(consumer, 1) == ["a"]
        client = Breaking(consumer._client, where)
        consumer._inbox.forget([TopicPartition(letters, 0)])
        consumer.seek(letters, 0, 1)
        monkeypatch.setattr(consumer._inbox, "_client", client)
        with pytest.raises(Interrupted):
            take(consumer, 1)
        assert consumer.positions == {TopicPartition(letters, 0): 1}
        assert take(consumer, 4) == ["b", "c", "d", "e"]


class Breaking:
    """librdkafka's consumer, interrupted right after it has returned its first message."""

    def __init__(self, client: Any, where: str) -> None:
        self._client = client
        self._where = where

    def poll(self, timeout_s: float) -> Any:
        found = self._client.poll(timeout_s)
        return self._interrupt("poll", found) if found is not None else None

    def consume(self, count: int, timeout_s: float) -> Any:
        return self._interrupt("consume", self._client.consume(count, timeout_s))

    def _interrupt(self, where: str, found: Any) -> Any:
        if where == self._where:
            self._where = ""
            raise Interrupted
        return found


def test_ctrl_c_ends_a_program_without_losing_a_message(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """
import sys
from skylog import Consumer
with Consumer(sys.argv[2], sys.argv[2], sys.argv[1]) as consumer:
    for message in consumer:
        print(message.offset, flush=True)
"""
    with Producer(skylog_bootstrap) as producer:
        for number in range(20_000):
            producer.send(skylog_topic, str(number))
    with subprocess.Popen(
        [sys.executable, "-c", script, skylog_bootstrap, skylog_topic], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline() for _ in range(3000)]
        program.send_signal(signal.SIGINT)
        lines += program.stdout.readlines()
    last = int(lines[-1])
    assert committed(skylog_bootstrap, skylog_topic)[0] <= last + 1
    assert committed(skylog_bootstrap, skylog_topic)[0] >= last - 1


def test_a_slow_application_commits_and_stays_in_its_group(
    skylog_bootstrap: str, skylog_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skylog.client.consumer.COMMIT_EVERY_S", 0.2)
    monkeypatch.setattr("skylog.client.consumer._REFILL_EVERY_S", 0.2)
    with Producer(skylog_bootstrap) as producer:
        for number in range(300):
            producer.send(skylog_topic, str(number))
    config = {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}
    with Consumer(skylog_topic, skylog_topic, skylog_bootstrap, config=config) as consumer:
        consumer._fill_count = 1000
        seen = []
        for message in consumer:
            seen.append(message.offset)
            time.sleep(0.025)  # the work of the application
            if len(seen) == 100:
                assert committed(skylog_bootstrap, skylog_topic)[0] >= 80
            if len(seen) == 290:
                break
    assert seen == list(range(290))
    assert committed(skylog_bootstrap, skylog_topic) == {0: 290}


def test_a_start_function_that_fails_is_asked_again(skylog_bootstrap: str, letters: str) -> None:
    with Consumer(letters, letters, skylog_bootstrap) as consumer:
        assert take(consumer, 4) == list("abcd")
    calls = []

    def stored_offset(partition: TopicPartition) -> int:
        calls.append(partition)
        if len(calls) == 1:
            raise RuntimeError("the database is away")
        return 1

    with Consumer(letters, letters, skylog_bootstrap, start=stored_offset) as consumer:
        with pytest.raises(RuntimeError, match="the database is away"):
            take(consumer, 1)
        assert take(consumer, 4) == ["b", "c", "d", "e"]


def test_a_group_that_began_at_the_latest_does_not_skip_what_came_while_it_was_away(
    skylog_bootstrap: str, letters: str
) -> None:
    with Consumer(letters, letters, skylog_bootstrap, start="latest") as consumer:
        wait_until(lambda: consumer.consume(timeout_s=0.1) or consumer.assignment, "an assignment")
    with Producer(skylog_bootstrap) as producer:
        producer.send(letters, "f", partition=0)
    with Consumer(letters, letters, skylog_bootstrap, start="latest") as consumer:
        assert take(consumer, 1) == ["f"]


def test_without_a_broker_a_consumer_closes_fast_and_a_commit_raises(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("letters", "a")
        consumer = Consumer("letters", "group", broker.bootstrap)
        assert take(consumer, 1) == ["a"]
        broker.kill()
        wait_until(lambda: consumer.consume(timeout_s=0.1) or consumer._connection.down_reason, "to be noticed")
        began = time.monotonic()
        with pytest.raises(BrokerUnreachableError, match="skylog serve"):
            consumer.commit()
        consumer.close()
        assert time.monotonic() - began < patience(15)


def test_a_consumer_that_loses_its_partitions_without_a_broker_does_not_abort(tmp_path: Path) -> None:
    """With all debug logs on, librdkafka always has a pending callback. Runs in a process that may die."""
    with BrokerProcess(tmp_path / "data") as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("letters", "a")
        program = f"""
import sys
from skylog import Consumer
consumer = Consumer("letters", "group", {broker.bootstrap!r}, config={{"debug": "all"}})
while not consumer.consume(timeout_s=1):
    pass
print("read", flush=True)
sys.stdin.readline()
while not consumer._connection.down_reason:
    consumer.consume(timeout_s=0.1)
consumer.close()
print("closed")
"""
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "read\n"
            broker.kill()
            output, _ = process.communicate("\n", timeout=patience(60))
    assert (process.returncode, output) == (0, "closed\n")


def test_closing_ends_even_if_librdkafka_does_not(
    skylog_bootstrap: str, letters: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While a rebalance is pending, librdkafka's `close` may never return."""
    consumer = Consumer(letters, "stuck", skylog_bootstrap)
    assert consumer.consume(1, 30)
    leave, may_end = consumer._client.close, threading.Event()
    monkeypatch.setattr(membership, "LEAVE_S", 0.1)
    monkeypatch.setattr(consumer._membership, "_client", SimpleNamespace(close=may_end.wait))
    consumer.close()
    assert "group 'stuck' was not left within 0.1 s" in caplog.text
    may_end.set()
    leave()


def test_a_program_that_closes_no_consumer_ends_although_a_rebalance_waits(
    skylog_bootstrap: str, skylog_topic: str
) -> None:
    script = """
import sys
from skylog import Consumer, ConsumerGroups, Producer
from skylog.testing import wait_until
bootstrap, topic = sys.argv[1:]
Producer(bootstrap).send(topic, "a").result(60)
consumer = Consumer(topic, "unclosed", bootstrap)  # its partitions are offered to it, and it does not take them
state = lambda: [group.state for group in ConsumerGroups(bootstrap).list_groups() if group.name == "unclosed"]
wait_until(lambda: state() == ["Stable"], "the group")
print("ends", flush=True)
"""
    command = [sys.executable, "-c", script, skylog_bootstrap, skylog_topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60))
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_a_process_ends_while_a_daemon_thread_reads(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """if True:
        import sys, threading, time
        from skylog import Consumer, Producer

        consumer = Consumer(sys.argv[2], group="daemon", bootstrap=sys.argv[1])
        reading = threading.Event()

        def read():
            for message in consumer:
                reading.set()

        threading.Thread(target=read, daemon=True).start()
        with Producer(sys.argv[1]) as producer:
            producer.send(sys.argv[2], b"")
        assert reading.wait(20)
        time.sleep(2)  # it waits for more
    """
    subprocess.run([sys.executable, "-c", script, skylog_bootstrap, skylog_topic], check=True, timeout=40)
