"""message_streams against a real broker."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from skylog import Producer, message_streams
from skylog.model import TopicPartition
from skylog.testing import wait_until
from tests.client.test_consumer import committed


def test_streams_that_are_not_iterated_own_no_partitions(skylog_bootstrap: str, letters: str) -> None:
    with message_streams({letters: 3}, letters, skylog_bootstrap) as streams:
        assert {topic: len(found) for topic, found in streams.items()} == {letters: 3}
        messages = iter(streams[letters][1])
        assert [message.text() for message in itertools.islice(messages, 5)] == list("abcde")
        messages.close()  # type: ignore[attr-defined]
    assert list(streams[letters][0]) == []


def test_a_stream_whose_thread_fails_hands_its_partitions_to_the_others(
    skylog_bootstrap: str, four_partitions: str
) -> None:
    with Producer(skylog_bootstrap) as producer:
        for number in range(40):
            producer.send(four_partitions, str(number), partition=number % 4)
    seen: list[str] = []

    def read(stream: object, fail_at: int) -> None:
        for count, message in enumerate(stream):  # type: ignore[arg-type, var-annotated]
            if count == fail_at:
                raise ValueError("this thread has had enough")
            seen.append(message.text())

    with message_streams({four_partitions: 2}, four_partitions, skylog_bootstrap) as streams:
        first, second = streams[four_partitions]
        with pytest.raises(ValueError, match="had enough"):
            read(first, 7)
        reader = threading.Thread(target=read, args=(second, -1))
        reader.start()
        wait_until(lambda: len(seen) == 40, "all messages")
    reader.join()
    assert sorted(map(int, seen)) == list(range(40))


def test_what_streams_have_given_is_committed(skylog_bootstrap: str, letters: str) -> None:
    streams = message_streams({letters: 1}, letters, skylog_bootstrap, commit="manual")
    for message in streams[letters][0]:
        if message.text() == "c":
            streams[letters][0].commit()
        if message.text() == "e":
            break
    streams.close()
    assert committed(skylog_bootstrap, letters) == {0: 3}


def test_an_iterator_that_is_kept_open_does_not_block_close(
    skylog_bootstrap: str, letters: str, caplog: pytest.LogCaptureFixture
) -> None:
    streams = message_streams({letters: 1}, letters, skylog_bootstrap)
    messages = iter(streams[letters][0])
    assert next(messages).text() == "a"
    streams.close(timeout_s=0.1)
    assert "still being iterated" in caplog.text
    assert list(messages) == []


def test_a_start_function_is_called_in_the_thread_that_iterates(skylog_bootstrap: str, letters: str) -> None:
    threads: list[int] = []

    def stored_offset(_: TopicPartition) -> int | None:
        threads.append(threading.get_ident())
        return 3

    with message_streams({letters: 1}, letters, skylog_bootstrap, start=stored_offset) as streams:
        messages = itertools.islice(streams[letters][0], 2)
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(lambda: ([message.text() for message in messages], threading.get_ident())).result(60)
            assert found == (["d", "e"], threads[0])
