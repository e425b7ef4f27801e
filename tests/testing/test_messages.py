"""Produce and consume in one call, with the broker of the plugin."""

from __future__ import annotations

import pytest

from skylog.client import Admin, BrokerUnreachableError, TopicNotFoundError
from skylog.errors import SkylogError
from skylog.testing import consume, produce, wait_until


def test_what_is_produced_is_consumed_in_order(skylog_bootstrap: str, skylog_topic: str) -> None:
    produce(skylog_bootstrap, skylog_topic, ["a", b"b", None], key="k")
    found = consume(skylog_bootstrap, skylog_topic, 3)
    assert [(message.offset, message.key, message.value) for message in found] == [
        (0, b"k", b"a"),
        (1, b"k", b"b"),
        (2, b"k", None),
    ]


def test_consume_gives_no_more_than_was_asked_for(skylog_bootstrap: str, skylog_topic: str) -> None:
    produce(skylog_bootstrap, skylog_topic, map(str, range(2500)))
    assert [message.offset for message in consume(skylog_bootstrap, skylog_topic, 7)] == list(range(7))
    assert len(consume(skylog_bootstrap, skylog_topic)) == 2500


def test_a_partition_can_be_chosen(skylog_bootstrap: str, skylog_admin: Admin, skylog_topic: str) -> None:
    skylog_admin.add_partitions(skylog_topic, 3)
    produce(skylog_bootstrap, skylog_topic, ["a", "b"], partition=2)
    assert [message.partition for message in consume(skylog_bootstrap, skylog_topic)] == [2, 2]


def test_messages_that_do_not_come_are_counted(skylog_bootstrap: str, skylog_topic: str) -> None:
    produce(skylog_bootstrap, skylog_topic, ["a"])
    with pytest.raises(AssertionError, match=f"topic '{skylog_topic}' gave 1 of 2 messages in 0.5 s"):
        consume(skylog_bootstrap, skylog_topic, 2, timeout_s=0.5)


def test_a_message_that_cannot_be_stored_is_an_error(skylog_bootstrap: str, skylog_topic: str) -> None:
    with pytest.raises(SkylogError, match=f"{skylog_topic}-9 was not delivered: there is no such partition"):
        produce(skylog_bootstrap, skylog_topic, ["a"], partition=9)


def test_an_unreachable_broker_is_an_error() -> None:
    with pytest.raises(BrokerUnreachableError):
        produce("127.0.0.1:1", "letters", ["a"])


def test_a_topic_that_is_not_there_is_an_error(skylog_bootstrap: str) -> None:
    with pytest.raises(TopicNotFoundError):
        consume(skylog_bootstrap, "nowhere")


def test_waiting_returns_the_result_or_names_the_condition() -> None:
    answers = iter([0, "", "here"])
    assert wait_until(lambda: next(answers), "an answer") == "here"
    with pytest.raises(AssertionError, match=r"waited 0\.05 s for a miracle"):
        wait_until(lambda: None, "a miracle", seconds=0.05)
