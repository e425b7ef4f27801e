"""`skylog tail` as a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from skylog.client import Admin, Connection

from .conftest import SKYLOG, Skylog
from .terminal import in_terminal

HOSTILE = "\x1b]0;owned\x07\x1b[2Jred \x1b[31m \x9b31m [bold]not bold[/bold] \u202eevil\r\n"


def test_the_last_ten_are_shown_by_default(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, *({"value": f"v{number}"} for number in range(15)))
    assert skylog("tail", topic, "--no-follow").stdout.split() == [f"v{number}" for number in range(5, 15)]
    assert skylog("tail", topic, "--no-follow", "-n", 2).stdout.split() == ["v13", "v14"]


def test_the_last_of_several_partitions_are_merged_by_time(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 3)
    skylog.send(topic, *({"partition": n % 3, "value": f"v{n}", "timestamp": 1000 + n} for n in range(30)))
    assert skylog("tail", topic, "--no-follow", "-n", 4).stdout.split() == ["v26", "v27", "v28", "v29"]


def test_one_partition_may_be_chosen(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 3)
    skylog.send(topic, *({"partition": n, "value": f"v{n}"} for n in range(3)))
    assert skylog("tail", topic, "--no-follow", "--partition", 1).stdout == "v1\n"
    assert "no partition 3" in skylog("tail", topic, "--no-follow", "--partition", 3, code=1).stderr


def test_a_start_may_be_given_and_n_then_ends_it(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, *({"value": f"v{number}"} for number in range(6)))
    assert skylog("tail", topic, "--no-follow", "--offset", 4).stdout.split() == ["v4", "v5"]
    assert skylog("tail", topic, "--from-beginning", "-n", 2).stdout.split() == ["v0", "v1"]
    assert skylog("tail", topic, "--no-follow", "--offset", 6).stdout == ""
    error = skylog("tail", topic, "--offset", 7, code=1).stderr
    assert f"{topic}-0 has offsets from 0 to 6, not 7" in error


def test_a_time_may_be_a_date_or_how_long_ago(skylog: Skylog, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    skylog.send(
        topic,
        {"value": "old", "timestamp": "2024-05-01T12:00:00Z"},
        {"value": "older than an hour", "timestamp": now_ms - 2 * 3_600_000},
        {"value": "new", "timestamp": now_ms},
    )
    assert skylog("tail", topic, "--no-follow", "--time", "1h").stdout == "new\n"
    assert len(skylog("tail", topic, "--no-follow", "--time", "2024-05-01T12:00:01Z").stdout.splitlines()) == 2
    assert skylog("tail", topic, "--no-follow", "--time", "2100-01-01").stdout == ""
    assert "ISO 8601" in skylog("tail", topic, "--time", "soon", code=2).stderr


def test_it_follows_until_interrupted(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, {"value": "first"})
    with skylog.start("tail", topic, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        skylog.send(topic, {"value": "second"})
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


def test_it_follows_new_partitions_and_fails_when_the_topic_is_deleted(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, {"value": "first"})
    admin = Admin(Connection(skylog.bootstrap))
    with skylog.start("tail", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        admin.add_partitions(topic, 2)
        skylog.send(topic, {"value": "second", "partition": 1})
        assert process.stdout.readline() == b"second\n"
        admin.delete_topics([topic])
        assert process.wait(30) == 1
        assert process.stderr is not None
        assert f"there is no topic '{topic}'".encode() in process.stderr.read()


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_terminal_without_unicode_gets_escapes(skylog: Skylog, topic: str, options: list[str]) -> None:
    skylog.send(topic, {"value": "h\u00e9 \u2603 \U0001f600"})
    done = subprocess.run(
        [SKYLOG, "tail", topic, "--no-follow", *options],
        env={**skylog.environment, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii").rstrip()
    value = str(json.loads(text)["value"]) if options else text.encode().decode("unicode_escape")
    assert value.encode("utf-16", "surrogatepass").decode("utf-16") == "h\u00e9 \u2603 \U0001f600"


def test_it_ends_when_its_output_is_closed(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, {"value": "first"})
    reader, writer = os.pipe()
    with skylog.start("tail", topic, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert os.read(reader, 100) == b"first\n"
        os.close(reader)
        process.wait(20)
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_topic_that_is_not_there_is_not_made_and_the_nearest_are_named(skylog: Skylog, topic: str) -> None:
    skylog.create(topic)
    error = skylog("tail", f"{topic}s", "--no-follow", code=1).stderr
    assert f"there is no topic '{topic}s'; did you mean {topic}" in error
    assert f"{topic}s" not in skylog.topics()


@pytest.mark.parametrize("options", [[], ["--meta"], ["--pretty"], ["--json"]])
def test_hostile_content_reaches_no_terminal(skylog: Skylog, topic: str, options: list[str]) -> None:
    skylog.send(topic, {"key": HOSTILE, "value": HOSTILE, "headers": {"h": HOSTILE}}, {"value": {"a": HOSTILE}})
    printed = skylog("tail", topic, "--no-follow", *options).stdout
    assert "[bold]not bold[/bold]" in printed
    assert not set(printed) & {"\x1b", "\x07", "\x9b", "\r", "\u202e"}
    if options == ["--json"]:
        first, second = map(json.loads, printed.splitlines())
        assert first["key"] == first["value"] == first["headers"][0]["value"] == HOSTILE
        assert second["value"] == {"a": HOSTILE}


def test_hostile_content_drives_no_terminal_even_with_colours(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, {"key": HOSTILE, "value": HOSTILE}, {"value": {"a": HOSTILE, "n": 12}})
    with in_terminal(skylog, "tail", topic) as (terminal, _):
        terminal.wait_for("12")
        terminal.wait_for("}")
    assert "[bold]not bold[/bold]" in terminal.seen
    assert "\\x1b]0;owned\\x07" in terminal.seen
    assert not any(sequence in terminal.seen for sequence in ("\x1b]0;", "\x07", "\x1b[2J", "\x9b", "\u202e"))


def test_a_terminal_gets_json_indented_coloured_and_with_its_place(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, {"key": "k", "value": {"name": "x"}, "timestamp": 1})
    with in_terminal(skylog, "tail", topic) as (terminal, process):
        terminal.wait_for("}")
        assert "0:0 1970-01-01T00:00:00.001Z key=k" in terminal.seen
        assert '\x1b[1;34m"name"' in terminal.seen
        assert "{\x1b[0m\r\n" in terminal.seen
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


def test_a_pipe_gets_one_line_per_message_whatever_is_in_it(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, {"value": '{\n  "a": 1\n}'}, {"value": "two\nlines"}, {"value": None})
    skylog.send(topic, {"value": "//4=", "value_encoding": "base64"})
    assert skylog("tail", topic, "--no-follow").stdout.splitlines() == ['{"a":1}', "two\\nlines", "null", "\\xff\\xfe"]
    assert '{\n  "a": 1\n}\n' in skylog("tail", topic, "--no-follow", "--pretty").stdout


def test_json_has_everything_about_a_message(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, {"key": "k", "value": {"a": 1}, "timestamp": 1714564800123, "headers": {"h": "x"}})
    assert skylog.json_lines("tail", topic, "--no-follow", "--json") == [
        {
            "topic": topic,
            "partition": 0,
            "offset": 0,
            "timestamp": "2024-05-01T12:00:00.123Z",
            "key": "k",
            "value": {"a": 1},
            "headers": [{"name": "h", "value": "x"}],
        }
    ]


def test_two_starts_are_a_usage_error(skylog: Skylog, topic: str) -> None:
    assert "choose one" in skylog("tail", topic, "--from-beginning", "--offset", 3, code=2).stderr
