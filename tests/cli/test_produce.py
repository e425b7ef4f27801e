"""`skylog produce` as a command."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from skylog.client import Admin, Connection
from skylog.model import TopicPartition

from .conftest import Skylog, until
from .terminal import in_terminal


def test_each_line_is_a_message_also_an_empty_one_and_one_without_an_end(skylog: Skylog, topic: str) -> None:
    error = skylog("produce", topic, stdin="one\n\nthree").stderr
    assert "sent 3 messages, 8 bytes" in error
    assert [each["value"] for each in skylog.read(topic)] == ["one", "", "three"]


def test_a_file_with_keys_headers_and_a_codec(skylog: Skylog, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a:1:2\nb:x\n")
    skylog("produce", topic, "--file", lines, "--key-separator", ":", "--header", "h=1=2", "--codec", "zstd")
    first, second = skylog.read(topic)
    assert (first["key"], first["value"], first["headers"]) == ("a", "1:2", [{"name": "h", "value": "1=2"}])
    assert (second["key"], second["value"]) == ("b", "x")


def test_one_key_for_all_keeps_them_in_one_partition(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 4)
    skylog("produce", topic, "--key", "same", stdin="".join(f"v{number}\n" for number in range(20)))
    messages = skylog.read(topic)
    assert len({each["partition"] for each in messages}) == 1
    assert [each["value"] for each in messages] == [f"v{number}" for number in range(20)]


def test_a_marked_value_is_sent_as_null(skylog: Skylog, topic: str) -> None:
    skylog("produce", topic, "--key-separator", ":", "--null-value", "", stdin="gone:\nhere:x\n")
    assert [(each["key"], each["value"]) for each in skylog.read(topic)] == [("gone", None), ("here", "x")]


def test_a_line_without_the_separator_is_named_and_those_before_it_are_sent(skylog: Skylog, topic: str) -> None:
    error = skylog("produce", topic, "--key-separator", ":", stdin="a:1\nnothing\nb:2\n", code=1).stderr
    assert "line 2" in error
    assert "sent 1 messages" in error
    assert len(skylog.read(topic)) == 1


def test_what_tail_prints_as_json_produce_takes_back(skylog: Skylog, topic: str) -> None:
    lines: list[dict[str, object]] = [
        {"key": "k", "value": {"a": [1, 2.5, None]}, "headers": {"h": "x"}, "timestamp": "2024-05-01T12:00:00.123Z"},
        {"key": None, "value": "plain"},
        {"key": base64.b64encode(b"\xff").decode(), "key_encoding": "base64", "value": None},
        {"value": base64.b64encode(b"\x00\xfe").decode(), "value_encoding": "base64", "timestamp": 5},
        {"value": '"quoted"'},
        {"value": "null"},
        {"value": 7},
    ]
    skylog("produce", topic, "--json-input", stdin="\n".join(map(json.dumps, lines)))
    printed = skylog("tail", topic, "--from-beginning", "--no-follow", "--json").stdout
    copy = f"{topic}-copy"
    skylog("produce", copy, "--json-input", stdin=printed)
    first, second = skylog.read(topic), skylog.read(copy)
    assert [each["value"] for each in first] == [line["value"] for line in lines]
    assert [{**each, "topic": ""} for each in first] == [{**each, "topic": ""} for each in second]


def test_a_bad_json_line_is_named_and_explained(skylog: Skylog, topic: str) -> None:
    error = skylog("produce", topic, "--json-input", stdin='{"value": 1}\n{"valeu": 1}\n', code=1).stderr
    assert "line 2: unknown field 'valeu'" in error
    assert "sent 1 messages" in error


def test_keys_and_headers_are_the_bytes_that_were_typed(skylog: Skylog, topic: str) -> None:
    skylog("produce", topic, "--key", os.fsdecode(b"k\xff"), "--header", os.fsdecode(b"h=\xfe"), stdin="v\n")
    (message,) = skylog.read(topic)
    assert base64.b64decode(message["key"]) == b"k\xff"
    assert base64.b64decode(message["headers"][0]["value"]) == b"\xfe"
    error = skylog("produce", topic, "--header", os.fsdecode(b"\xff=x"), stdin="v\n", code=1).stderr
    assert "cannot be the name of a header" in error


def test_lines_may_be_typed_until_ctrl_d(skylog: Skylog, topic: str) -> None:
    with in_terminal(skylog, "produce", topic) as (terminal, _):
        terminal.wait_for("Ctrl-D ends")
        terminal.type("one\ntwo\n\x04")
        terminal.wait_for("sent 2 messages")
    assert [each["value"] for each in skylog.read(topic)] == ["one", "two"]


def test_an_argument_that_is_not_utf_8_is_named(skylog: Skylog) -> None:
    for arguments in (["topics", "create"], ["groups", "describe"], ["produce"]):
        error = skylog(*arguments, os.fsdecode(b"b\xe4r"), stdin="v\n", code=1).stderr
        assert error == "error: the argument 'b\\udce4r' is not valid UTF-8\n"


def test_a_partition_that_is_not_there_is_named(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 2)
    assert "no partition 2" in skylog("produce", topic, "--partition", 2, stdin="x\n", code=1).stderr
    error = skylog("produce", topic, "--json-input", stdin='{"partition": 9, "value": "x"}', code=1).stderr
    assert f"topic '{topic}' has no partition 9; see: skylog topics describe {topic}" in error


def test_a_partition_that_a_new_topic_does_not_get_is_named(skylog: Skylog, topic: str) -> None:
    error = skylog("produce", topic, "--partition", "7", stdin="x\n", code=1).stderr
    assert f"error: topic '{topic}' has no partition 7; see: skylog topics describe {topic}" in error


def test_a_name_that_no_topic_can_have_is_explained(skylog: Skylog) -> None:
    error = skylog("produce", "two words", stdin="x\n", code=1).stderr
    assert "error: topic name 'two words' may only contain letters, digits, '.', '_' and '-'" in error


def test_a_refused_message_is_an_error_with_the_first_reason(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, max_message_bytes="1000")
    error = skylog("produce", topic, stdin="x" * 5000 + "\n", code=1).stderr
    assert f"{topic}-0" in error
    assert "too large" in error.lower()
    assert "1 messages were not delivered" in error


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_may_be_chosen(skylog: Skylog, topic: str, acks: str) -> None:
    skylog("produce", topic, "--acks", acks, stdin="x\n")
    assert [each["value"] for each in skylog.read(topic)] == ["x"]


def test_many_lines_are_all_there_and_in_order(skylog: Skylog, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"line {number}\n" for number in range(50_000)))
    assert "sent 50,000 messages" in skylog("produce", topic, "--file", lines, "--codec", "lz4").stderr
    assert skylog("tail", topic, "--from-beginning", "--no-follow").stdout == lines.read_text()


def test_ctrl_c_sends_the_lines_read_so_far_and_reports_them(skylog: Skylog, topic: str) -> None:
    admin, partition = Admin(Connection(skylog.bootstrap)), TopicPartition(topic, 0)

    def stored() -> int:
        return len(admin.offset_ranges([partition])[partition]) if topic in skylog.topics() else 0

    with skylog.start("produce", topic, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\nb\n")
        process.stdin.flush()
        until(lambda: stored() == 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert b"sent 2 messages" in process.stderr.read()


def test_a_file_that_cannot_be_read_is_named(skylog: Skylog, topic: str) -> None:
    assert "--file /nowhere" in skylog("produce", topic, "--file", "/nowhere", code=1).stderr
