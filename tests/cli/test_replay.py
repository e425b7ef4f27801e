"""`skylog replay` as a command."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skylog.testing import BrokerProcess

from .conftest import Skylog, until
from .terminal import in_terminal

HEADERS = [{"name": "b", "value": "1"}, {"name": "a", "value": "2"}, {"name": "b", "value": None}]


def moment(number: int) -> str:
    return f"2024-05-01T12:00:{number:02}.500+00:00"


def numbered(count: int, **fields: object) -> list[dict[str, object]]:
    return [{"key": f"k{n}", "value": f"v{n}", "timestamp": moment(n % 60), **fields} for n in range(count)]


def content(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without topic and offset, by partition, in order."""
    messages = sorted(messages, key=lambda message: (message["partition"], message["offset"]))
    return [{key: value for key, value in each.items() if key not in ("topic", "offset")} for each in messages]


def values(skylog: Skylog, topic: str) -> list[Any]:
    return [message["value"] for message in skylog.read(topic)]


def test_a_replay_keeps_everything_but_the_topic(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 3)
    skylog.send(
        topic,
        *numbered(60, headers=HEADERS),
        {"key": "gone", "value": None, "timestamp": moment(1), "partition": 2},
        {"key": None, "value": "no key", "timestamp": moment(2), "partition": 1},
        {"key": "/w==", "key_encoding": "base64", "value": "", "timestamp": moment(3), "partition": 0},
    )
    before = skylog.read(topic)
    result = skylog("replay", topic, "--from", "start", "--into", f"{topic}-copy")
    assert f"replayed 63 messages of '{topic}' into '{topic}-copy'" in result.stderr
    assert result.stdout == ""
    assert len(before) == 63
    assert content(skylog.read(f"{topic}-copy")) == content(before)
    assert skylog.read(topic) == before


def test_a_range_of_offsets_is_without_its_end(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 2)
    skylog.send(topic, *numbered(20, partition=0), *numbered(20, partition=1))
    summary = skylog.json(
        "replay", topic, "--from", 5, "--to", 8, "--partition", 1, "--into", f"{topic}-copy", "--json"
    )
    assert [(each["partition"], each["value"]) for each in skylog.read(f"{topic}-copy")] == [
        (1, "v5"),
        (1, "v6"),
        (1, "v7"),
    ]
    del summary["elapsed_s"]
    assert summary == {
        "source": topic,
        "into": f"{topic}-copy",
        "created": True,
        "keeps_partitions": True,
        "complete": True,
        "messages": 3,
        "partitions": [{"partition": 1, "start_offset": 5, "end_offset": 8, "next_offset": 8}],
    }


def test_a_range_of_times(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, *numbered(20))
    skylog("replay", topic, "--from", moment(3), "--to", moment(6), "--into", f"{topic}-copy")
    assert values(skylog, f"{topic}-copy") == ["v3", "v4", "v5"]


def test_offsets_by_partition_choose_the_partitions(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 3)
    skylog.send(topic, *(message for number in range(3) for message in numbered(10, partition=number)))
    skylog("replay", topic, "--from", "0:8,2:9", "--into", f"{topic}-copy")
    found = sorted((each["partition"], each["value"]) for each in skylog.read(f"{topic}-copy"))
    assert found == [(0, "v8"), (0, "v9"), (2, "v9")]


def test_a_topic_is_replayed_into_itself_once(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, *numbered(2500))
    result = skylog("replay", topic, "--from", "start", "--into", topic)
    assert "into itself" in result.stderr
    assert values(skylog, topic) == [f"v{n}" for n in range(2500)] * 2


def test_other_partition_counts_send_by_key_as_javas_clients_do(skylog: Skylog, topic: str) -> None:
    messages = numbered(50)
    for name in (f"{topic}-expected", f"{topic}-copy"):
        skylog.create(name, 5)
    skylog.send(f"{topic}-expected", *messages, partitioner="murmur2_random")
    skylog.create(topic, 2)
    skylog.send(topic, *messages)
    assert "by key" in skylog("replay", topic, "--from", "start", "--into", f"{topic}-copy").stderr

    def placed(name: str) -> set[tuple[int, str]]:
        return {(each["partition"], each["value"]) for each in skylog.read(name)}

    assert placed(f"{topic}-copy") == placed(f"{topic}-expected")


def test_partitions_are_kept_on_demand_where_there_are_enough(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 3)
    skylog.create(f"{topic}-wide", 4)
    skylog.create(f"{topic}-narrow", 2)
    skylog.send(topic, *numbered(4, partition=2))
    skylog("replay", topic, "--from", "start", "--into", f"{topic}-wide", "--keep-partitions")
    assert {each["partition"] for each in skylog.read(f"{topic}-wide")} == {2}
    refused = skylog("replay", topic, "--from", "start", "--into", f"{topic}-narrow", "--keep-partitions", code=1)
    assert f"partition 2 of topic '{topic}' cannot be kept: topic '{topic}-narrow' has 2" in refused.stderr


def test_another_cluster_can_be_the_target(skylog: Skylog, topic: str, tmp_path: Path) -> None:
    skylog.send(topic, *numbered(10))
    with BrokerProcess(tmp_path / "data") as other:
        result = skylog("replay", topic, "--from", "start", "--into", topic, "--into-bootstrap", other.bootstrap)
        assert "into itself" not in result.stderr
        assert content(Skylog(other.bootstrap).read(topic)) == content(skylog.read(topic))
    assert len(skylog.read(topic)) == 10


def test_the_rate_is_kept_to(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, *numbered(100))
    summary = skylog.json("replay", topic, "--from", "start", "--into", f"{topic}-copy", "--rate", 100, "--json")
    assert summary["messages"] == 100
    assert 0.85 < summary["elapsed_s"] < 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_can_be_continued_without_loss_or_duplicates(
    skylog: Skylog, topic: str, number: signal.Signals
) -> None:
    skylog.create(topic, 2)
    skylog.create(f"{topic}-copy", 2)
    skylog.send(topic, *numbered(3000))
    command = ["replay", topic, "--from", "start", "--into", f"{topic}-copy", "--rate", 200]
    with skylog.start(*command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        until(lambda: len(skylog.read(f"{topic}-copy")) > 20)
        process.send_signal(number)
        said = process.stderr.read().decode()
        assert process.wait(20) == 130
    assert "error: interrupted" in said
    assert len(skylog.read(f"{topic}-copy")) < 3000
    (rest,) = (line.partition("continue with: skylog ")[2] for line in said.splitlines() if "continue with" in line)
    skylog(*(word for word in shlex.split(rest.replace("--rate 200", ""))))
    assert content(skylog.read(f"{topic}-copy")) == content(skylog.read(topic))


def test_a_terminal_sees_how_far_it_is(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, *numbered(500))
    command = ["replay", topic, "--from", "start", "--into", f"{topic}-copy", "--rate", "400"]
    with in_terminal(skylog, *command) as (terminal, process):
        terminal.wait_for("/500")
        terminal.wait_for("messages/s")
        terminal.wait_for("replayed 500 messages")
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "7"], "0 holds the offsets from 0 up to 5, not 7"),
        (["--from", "0", "--to", "6"], "0 holds the offsets from 0 up to 5, not 6"),
        (["--from", "4", "--to", "2"], "the range ends before it begins"),
        (["--from", "0:1,1:1"], "has no partition 1: it has 1"),
        (["--from", "start", "--partition", "3"], "has no partition 3: it has 1"),
    ],
)
def test_a_range_outside_of_the_log_is_rejected(skylog: Skylog, topic: str, arguments: list[str], said: str) -> None:
    skylog.send(topic, *numbered(5))
    assert said in skylog("replay", topic, *arguments, "--into", f"{topic}-copy", code=1).stderr
    assert f"{topic}-copy" not in skylog.topics()


def test_an_unknown_source_is_an_error_that_names_the_nearest(skylog: Skylog, topic: str) -> None:
    skylog.create(f"{topic}-orders")
    result = skylog("replay", f"{topic}-order", "--from", "start", "--into", "x", code=1)
    assert f"did you mean {topic}-orders" in result.stderr


def test_an_invalid_position_is_an_error_that_names_the_forms(skylog: Skylog, topic: str) -> None:
    result = skylog("replay", topic, "--from", "strat", "--into", "x", code=2)
    assert "--from" in result.stderr
    assert "an offset, start or end" in " ".join(result.stderr.replace("│", "").split())


def test_an_empty_range_creates_the_target_and_ends(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 2)
    skylog("replay", topic, "--from", "start", "--into", f"{topic}-copy")
    assert f"{topic}-copy" in skylog.topics()


def test_dead_letters_go_back_to_where_they_came_from(skylog: Skylog, topic: str) -> None:
    skylog.create(f"{topic}-orders", 3)
    skylog.create(f"{topic}-visits", 1)

    def letter(origin: str, partition: int, number: int) -> dict[str, object]:
        names = {"topic": f"{topic}-{origin}", "partition": str(partition), "offset": "7", "type": "ValueError"}
        names["timestamp"] = "1714564801500"  # moment(1)
        headers = [*HEADERS, *({"name": f"skylog-error-{name}", "value": value} for name, value in names.items())]
        return {"key": f"k{number}", "value": f"v{number}", "headers": headers}

    skylog.send(topic, letter("orders", 2, 0), letter("visits", 0, 1), letter("orders", 1, 2))
    result = skylog("replay", topic, "--from", "start", "--back")
    assert f"replayed 3 messages of '{topic}' into the topics they came from, to the same partitions" in result.stderr
    same = {"timestamp": "2024-05-01T12:00:01.500Z", "headers": HEADERS}
    orders = content(skylog.read(f"{topic}-orders"))
    assert [(each["partition"], each["key"], each["value"]) for each in orders] == [(1, "k2", "v2"), (2, "k0", "v0")]
    assert [{name: each[name] for name in same} for each in orders] == [same, same]
    assert values(skylog, f"{topic}-visits") == ["v1"]


def test_a_message_that_is_no_dead_letter_does_not_go_back(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, *numbered(2))
    refused = skylog("replay", topic, "--from", "start", "--back", code=1)
    assert f"{topic}-0 at offset 0 is no dead letter" in refused.stderr
    assert f"continue with: skylog replay {topic} --from 0:0 --to 0:2 --back" in refused.stderr


@pytest.mark.parametrize("options", [(), ("--into", "x", "--back")])
def test_a_replay_goes_into_a_topic_or_back(skylog: Skylog, topic: str, options: tuple[str, ...]) -> None:
    assert "choose one" in skylog("replay", topic, "--from", "start", *options, code=2).stderr
