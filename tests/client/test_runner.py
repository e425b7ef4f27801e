"""StreamRunner and AsyncStreamRunner against a real broker: what happens to messages that cannot be handled."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from skylog import AsyncStreamRunner, Consumer, ErrorPolicy, Message, Producer, StreamRunner
from skylog.client import DeserializeError, dead_letter, original_of
from skylog.client.serializers import from_json
from skylog.errors import ConfigError, SkylogError
from skylog.model import TopicPartition
from skylog.testing import consume, wait_until
from tests.client.test_consumer import committed, take
from tests.present import present

QUICK_S = 0.01
Run = Callable[..., Any]


def run_threads(topics: dict[str, int], handle: Callable[[Message], object], *args: Any, **options: Any) -> Any:
    """Run in threads until `handle` returns DONE or the runner fails; return the runner."""
    runner: list[StreamRunner] = []

    def handled(message: Message) -> None:
        if handle(message) is DONE:
            runner[0].stop()

    runner.append(StreamRunner(topics, handled, *args, **options))
    runner[0].run()
    return runner[0]


def run_tasks(topics: dict[str, int], handle: Callable[[Message], object], *args: Any, **options: Any) -> Any:
    async def run() -> Any:
        async def handled(message: Message) -> None:
            await asyncio.sleep(0)
            if handle(message) is DONE:
                runner.stop()

        runner = AsyncStreamRunner(topics, handled, *args, **options)
        await runner.run()
        return runner

    return asyncio.run(run())


DONE = object()
both = pytest.mark.parametrize("run", [run_threads, run_tasks])


@both
def test_a_message_that_fails_for_a_while_is_retried_in_order(run: Run, skylog_bootstrap: str, letters: str) -> None:
    attempts: list[str] = []

    def handle(message: Message) -> object:
        attempts.append(message.text())
        if message.text() == "b" and attempts.count("b") < 3:
            raise ConnectionError("the database is away")
        return DONE if message.text() == "e" else None

    runner = run({letters: 1}, handle, letters, skylog_bootstrap, policy=ErrorPolicy(backoff_s=QUICK_S))
    assert "".join(attempts) == "abbbcde"
    assert (runner.counts.handled, runner.counts.retried, runner.counts.dead) == (5, 2, 0)
    assert committed(skylog_bootstrap, letters) == {0: 5}


@both
def test_a_message_that_always_fails_goes_to_the_dead_letter_topic_and_the_rest_goes_on(
    run: Run, skylog_bootstrap: str, skylog_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(skylog_bootstrap) as producer:
        producer.send(skylog_topic, b'{"n": 1}', partition=0)
        producer.send(skylog_topic, b"\xffno json", b"key", partition=0, headers=[("h", b"1")], timestamp_ms=12_345)
        producer.send(skylog_topic, b'{"n": 2}', partition=0)
    dead, seen = f"{skylog_topic}.dead", []

    def handle(message: Message[Any]) -> object:
        number = present(message.value)["n"]
        seen.append(number)
        if number == 1:
            raise ValueError("not this one")
        return DONE

    policy = ErrorPolicy(retries=1, dead_letter_topic=dead, backoff_s=QUICK_S)
    runner = run({skylog_topic: 1}, handle, skylog_topic, skylog_bootstrap, policy=policy, deserializer=from_json)
    assert seen == [1, 1, 2]
    assert (runner.counts.handled, runner.counts.retried, runner.counts.dead) == (1, 1, 2)
    assert committed(skylog_bootstrap, skylog_topic) == {0: 3}
    first, second = consume(skylog_bootstrap, dead, count=2)
    assert (first.key, first.value) == (None, b'{"n": 1}')
    assert (second.key, second.value) == (b"key", b"\xffno json")
    headers = dict(second.headers)
    text = headers.pop("skylog-error-message")
    assert text is not None
    assert b"cannot be read" in text
    assert headers == {
        "h": b"1",
        "skylog-error-type": b"DeserializeError",
        "skylog-error-topic": skylog_topic.encode(),
        "skylog-error-partition": b"0",
        "skylog-error-offset": b"1",
        "skylog-error-group": skylog_topic.encode(),
        "skylog-error-attempts": b"1",  # the same bytes would fail again
        "skylog-error-timestamp": b"12345",
    }
    assert dict(first.headers)["skylog-error-attempts"] == b"2"
    assert second.timestamp_ms > 12_345
    assert f"it is now in '{dead}'" in caplog.text


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@both
@pytest.mark.parametrize(
    ("error", "text"),
    [(ValueError("no such user: \ud800"), b"no such user: \\ud800"), (UnreadableError(), b"cannot be shown")],
    ids=["no UTF-8", "no text"],
)
def test_a_dead_letter_is_stored_whatever_the_text_of_the_exception(
    run: Run, skylog_bootstrap: str, letters: str, error: Exception, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "skylog")  # no process can send a report whose captured log is no UTF-8

    def handle(message: Message) -> object:
        if message.text() == "b":
            raise error
        return DONE if message.text() == "e" else None

    policy = ErrorPolicy(retries=0, dead_letter_topic=f"{letters}.dead")
    assert run({letters: 1}, handle, letters, skylog_bootstrap, policy=policy).counts.dead == 1
    (letter,) = consume(skylog_bootstrap, f"{letters}.dead", count=1)
    assert text in present(dict(letter.headers)["skylog-error-message"])


@both
def test_a_message_larger_than_a_producer_sends_by_default_becomes_a_dead_letter(
    run: Run, skylog_bootstrap: str, skylog_topic: str
) -> None:
    large = b"x" * 3_000_000  # a few kilobytes in the log
    with Producer(skylog_bootstrap, compression="zstd", config={"message.max.bytes": 4_000_000}) as producer:
        producer.send(skylog_topic, large)
        producer.send(skylog_topic, b"{}")

    def handle(message: Message) -> object:
        message.json()
        return DONE

    dead = f"{skylog_topic}.dead"
    run({skylog_topic: 1}, handle, skylog_topic, skylog_bootstrap, policy=ErrorPolicy(dead_letter_topic=dead))
    (letter,) = consume(skylog_bootstrap, dead, count=1)
    assert letter.value == large


@both
def test_dead_letters_are_logged_with_their_traceback_and_counted_at_the_end(
    run: Run, skylog_bootstrap: str, letters: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Message) -> object:
        if message.text() in "abc":
            raise LookupError(f"no customer {message.text()}")
        return DONE

    policy = ErrorPolicy(retries=0, dead_letter_topic=f"{letters}.dead")
    run({letters: 1}, handle, letters, skylog_bootstrap, policy=policy)
    lines = [record for record in caplog.records if record.name == "skylog.client.error_policy"]
    assert "no customer a" in lines[0].getMessage()  # those of b and c follow within seconds
    assert lines[0].exc_info is not None
    assert isinstance(lines[0].exc_info[1], LookupError)
    assert (len(lines), lines[1].levelname) == (2, "WARNING")
    assert lines[1].getMessage() == "the runner has ended; messages handled: 1, in the dead-letter topic: 3"


@both
def test_without_a_dead_letter_topic_the_whole_runner_stops_with_the_error(
    run: Run, skylog_bootstrap: str, four_partitions: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(skylog_bootstrap) as producer:
        for number in range(40):
            producer.send(four_partitions, str(number), partition=number % 4)
    failures: list[int] = []

    def handle(message: Message) -> None:
        if message.text() == "22":
            failures.append(message.offset)
            raise KeyError("22")

    policy = ErrorPolicy(retries=2, backoff_s=QUICK_S)
    with pytest.raises(KeyError) as raised:
        run({four_partitions: 2}, handle, four_partitions, skylog_bootstrap, policy=policy)
    # One stream tried it three times, and no other one after it. Before that, a rebalance may have moved the partition.
    assert (set(failures), 3 <= len(failures) < 6) == ({5}, True)
    assert raised.value.__notes__ == [f"while handling {four_partitions}-2 at offset 5, attempt 3"]
    assert "the runner stops: KeyError: '22'" in caplog.text
    assert committed(skylog_bootstrap, four_partitions).get(2, 5) == 5


@both
def test_a_dead_letter_that_cannot_be_stored_stops_the_runner(
    run: Run, skylog_bootstrap: str, letters: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Message) -> None:
        raise ValueError(message.text())

    policy = ErrorPolicy(retries=0, dead_letter_topic="no/topic")
    with pytest.raises(SkylogError, match="no/topic"):
        run({letters: 1}, handle, letters, skylog_bootstrap, policy=policy)
    assert f"dead letter of {letters}-0 at offset 0, which failed with ValueError: a" in caplog.text
    assert committed(skylog_bootstrap, letters).get(0, 0) == 0


@both
def test_a_member_stays_in_its_group_while_a_message_waits(run: Run, skylog_bootstrap: str, letters: str) -> None:
    """librdkafka would leave the group after six seconds without a poll."""
    attempts: list[str] = []

    def handle(message: Message) -> object:
        attempts.append(message.text())
        if len(attempts) == 1:
            raise ConnectionError("the database is away")
        return DONE if message.text() == "e" else None

    policy = ErrorPolicy(retries=1, backoff_s=7)
    config = {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}
    run({letters: 1}, handle, letters, skylog_bootstrap, policy=policy, config=config)
    assert "".join(attempts) == "aabcde"


def test_a_stop_ends_a_wait_and_the_message_comes_again(skylog_bootstrap: str, letters: str) -> None:
    failed = threading.Event()

    def fail(message: Message) -> None:
        if message.text() == "b":
            failed.set()
            raise ConnectionError("the database is away")

    policy = ErrorPolicy(retries=None, backoff_s=3600, max_backoff_s=3600)
    with StreamRunner({letters: 1}, fail, letters, skylog_bootstrap, policy=policy) as runner:
        assert failed.wait(30)
        assert not runner.wait(0)
    assert committed(skylog_bootstrap, letters) == {0: 1}


def test_a_stop_during_a_wait_does_not_commit_for_a_partition_that_another_member_has(
    skylog_bootstrap: str, letters: str
) -> None:
    failed = threading.Event()

    def fail(_: Message) -> None:
        failed.set()
        raise ConnectionError("the database is away")

    policy = ErrorPolicy(retries=None, backoff_s=3600, max_backoff_s=3600)
    first, second = (  # the only partition goes to the member with the smaller id
        {"partition.assignment.strategy": "range", "client.id": client_id, "session.timeout.ms": 6000}
        for client_id in ("a", "z")
    )
    with StreamRunner({letters: 1}, fail, letters, skylog_bootstrap, policy=policy, config=second) as runner:
        assert failed.wait(30)
        with Consumer(letters, letters, skylog_bootstrap, commit="manual", config=first) as other:
            assert "".join(take(other, 5)) == "abcde"
            other.commit()
            runner.stop()
            runner.close()
            assert committed(skylog_bootstrap, letters) == {0: 5}


def test_a_cancelled_runner_leaves_its_group_and_the_message_comes_again(skylog_bootstrap: str, letters: str) -> None:
    async def run() -> None:
        reached = asyncio.Event()

        async def handle(message: Message) -> None:
            if message.text() == "c":
                reached.set()
                await asyncio.sleep(3600)

        running = asyncio.create_task(AsyncStreamRunner({letters: 1}, handle, letters, skylog_bootstrap).run())
        await asyncio.wait_for(reached.wait(), 30)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    assert committed(skylog_bootstrap, letters) == {0: 2}


def test_the_exception_of_the_block_wins_over_that_of_the_runner(skylog_bootstrap: str, letters: str) -> None:
    def fail(_: Message) -> None:
        raise ValueError("the runner")

    policy = ErrorPolicy(retries=0)
    runner = StreamRunner({letters: 1}, fail, letters, skylog_bootstrap, policy=policy)

    def fail_in_the_block() -> None:
        with runner:
            assert runner.wait(30)
            raise RuntimeError("the block")

    with pytest.raises(RuntimeError, match="the block"):
        fail_in_the_block()


@both
def test_a_runner_that_has_ended_does_not_pretend_to_run_again(run: Run, skylog_bootstrap: str, letters: str) -> None:
    runner = run({letters: 1}, lambda message: DONE, letters, skylog_bootstrap)
    again = runner.run
    with pytest.raises(SkylogError, match="has run already; create a new one"):
        asyncio.run(again()) if run is run_tasks else again()


def test_back_off_doubles_up_to_a_limit_and_permanent_errors_are_not_retried() -> None:
    policy = ErrorPolicy(retries=None, backoff_s=1, max_backoff_s=5)
    error = ValueError()
    assert [policy.delay_s(attempt, error) for attempt in (1, 2, 3, 4, 5, 5000)] == [1, 2, 4, 5, 5, 5]
    assert policy.delay_s(1, DeserializeError("t", 0, 0, "x")) is None
    assert [ErrorPolicy(retries=2).delay_s(attempt, error) for attempt in (1, 2, 3)] == [0.5, 1.0, None]
    assert ErrorPolicy(retries=0).delay_s(1, error) is None


@pytest.mark.parametrize("options", [{"retries": -1}, {"backoff_s": -1}, {"dead_letter_topic": ""}])
def test_an_impossible_policy_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ErrorPolicy(**options)


def test_a_dead_letter_names_its_original_and_replaces_an_earlier_failure(skylog_bootstrap: str, letters: str) -> None:
    (message, *_) = consume(skylog_bootstrap, letters, count=1)
    with pytest.raises(SkylogError, match="is no dead letter"):
        original_of(message)
    with Producer(skylog_bootstrap) as producer:
        letter = dead_letter(message, ValueError("first"), "g", 1)
        position = producer.send(letters, letter.value, headers=[("own", b"x"), *letter.headers]).result(20)
    found = consume(skylog_bootstrap, letters, count=6)[-1]
    assert original_of(found)[:3] == (letters, 0, 0)
    assert original_of(found).headers == (("own", b"x"),)
    again = dict(dead_letter(found, ValueError("second"), "g", 1).headers)
    assert (again["skylog-error-message"], again["skylog-error-offset"]) == ("second", str(position.offset))


def test_a_stream_whose_loop_fails_is_logged(
    skylog_bootstrap: str, letters: str, caplog: pytest.LogCaptureFixture
) -> None:
    from skylog import message_streams

    def read(stream: Any) -> None:
        for _message in stream:
            raise ValueError("a bad message")

    with message_streams({letters: 1}, letters, skylog_bootstrap) as streams, caplog.at_level(logging.WARNING):
        with pytest.raises(ValueError, match="a bad message"):
            read(streams[letters][0])
        wait_until(lambda: "has ended before it was stopped" in caplog.text, "the line")


@both
def test_a_start_function_is_called_in_the_thread_that_handles_messages(
    run: Run, skylog_bootstrap: str, letters: str
) -> None:
    threads: set[int] = set()

    def stored_offset(_: TopicPartition) -> int | None:
        threads.add(threading.get_ident())
        return 3

    def handle(message: Message) -> object:
        threads.add(threading.get_ident())
        assert message.text() in "de"
        return DONE if message.text() == "e" else None

    run({letters: 1}, handle, letters, skylog_bootstrap, start=stored_offset, policy=ErrorPolicy(retries=0))
    assert len(threads) == 1
