"""`skylog topics` as a command."""

from __future__ import annotations

import pytest

from .conftest import Skylog
from .terminal import in_terminal


def test_a_created_topic_is_described_with_its_partitions_and_changed_configs(skylog: Skylog, topic: str) -> None:
    skylog("topics", "create", topic, "--partitions", 3, "--config", "retention.ms=1h")
    [description] = skylog.json("topics", "describe", topic, "--json")
    assert description["name"] == topic
    assert [each["partition"] for each in description["partitions"]] == [0, 1, 2]
    assert all(each["start_offset"] == each["end_offset"] == 0 for each in description["partitions"])
    assert description["configs"] == {"retention.ms": {"value": "3600000", "source": "topic"}}


def test_all_configs_are_shown_with_their_source(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, segment_bytes="4096")
    [description] = skylog.json("topics", "describe", topic, "--all-configs", "--json")
    assert description["configs"]["segment.bytes"] == {"value": "4096", "source": "topic"}
    assert description["configs"]["retention.ms"]["source"] == "default"


def test_people_get_a_table(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, retention_ms="5000")
    lines = skylog("topics", "describe", topic).stdout.splitlines()
    assert lines[0] == topic
    assert lines[1].split() == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "START", "OFFSET", "END", "OFFSET"]
    assert any(line.split() == ["retention.ms", "5000", "topic"] for line in lines)


def test_the_list_counts_messages_over_all_partitions(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 2)
    skylog.send(topic, *({"partition": partition} for partition in (0, 0, 1)))
    listed = {row["name"]: row for row in skylog.json("topics", "list", "--json")}
    assert listed[topic] == {"name": topic, "partitions": 2, "replication_factor": 1, "messages": 3}
    row = next(line for line in skylog("topics", "list").stdout.splitlines() if line.split()[0] == topic)
    assert row.split() == [topic, "2", "3"]


def test_creating_a_topic_twice_fails_unless_that_is_fine(skylog: Skylog, topic: str) -> None:
    skylog.create(topic)
    assert "already exists" in skylog("topics", "create", topic, code=1).stderr
    skylog("topics", "create", topic, "--if-not-exists")


@pytest.mark.parametrize(
    ("arguments", "explanation"),
    [
        (["../x"], "may only contain letters"),
        (["fine", "--config", "retention.mss=1"], "did you mean 'retention.ms'?"),
        (["fine", "--replication-factor", "3"], "replication factor of 3"),
    ],
)
def test_an_invalid_topic_is_rejected_with_the_clusters_message(
    skylog: Skylog, arguments: list[str], explanation: str
) -> None:
    assert explanation in skylog("topics", "create", *arguments, code=1).stderr


def test_a_config_without_a_value_is_a_usage_error(skylog: Skylog, topic: str) -> None:
    assert "KEY=VALUE" in skylog("topics", "create", topic, "--config", "retention.ms", code=2).stderr


def test_alter_sets_and_deletes_configs_and_adds_partitions(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, retention_ms="1000", segment_bytes="4096")
    skylog(
        "topics", "alter", topic, "--partitions", 4, "--config", "retention.ms=2s", "--delete-config", "segment.bytes"
    )
    [description] = skylog.json("topics", "describe", topic, "--json")
    assert len(description["partitions"]) == 4
    assert description["configs"] == {"retention.ms": {"value": "2000", "source": "topic"}}


def test_alter_reports_that_only_the_settings_were_changed(skylog: Skylog, topic: str) -> None:
    skylog.create(topic, 2)
    error = skylog("topics", "alter", topic, "--partitions", 1, "--config", "retention.ms=2000", code=1).stderr
    assert "cannot shrink" in error
    assert "the settings have been changed" in error


def test_alter_without_a_change_is_a_usage_error(skylog: Skylog, topic: str) -> None:
    assert "nothing to change" in skylog("topics", "alter", topic, code=2).stderr


def test_delete_without_a_terminal_requires_yes(skylog: Skylog, topic: str) -> None:
    skylog.create(topic)
    assert "--yes" in skylog("topics", "delete", topic, code=1).stderr
    skylog("topics", "delete", topic, "--yes")
    assert topic not in skylog.topics()


def test_delete_asks_in_a_terminal_and_takes_no_for_an_answer(skylog: Skylog, topic: str) -> None:
    skylog.send(topic, {}, {})
    with in_terminal(skylog, "topics", "delete", topic) as (terminal, process):
        terminal.wait_for(f"Delete {topic} with 2 messages?")
        terminal.type("n\n")
        assert process.wait(20) == 1
    assert topic in skylog.topics()


def test_delete_of_several_deletes_none_if_one_is_not_there(skylog: Skylog, topic: str) -> None:
    skylog.create(topic)
    assert f"'{topic}x'; did you mean {topic}" in skylog("topics", "delete", topic, f"{topic}x", "--yes", code=1).stderr
    assert topic in skylog.topics()


def test_an_unreachable_broker_is_reported_within_seconds_with_what_to_do() -> None:
    nobody = Skylog("127.0.0.1:1")
    error = nobody("topics", "list", code=1).stderr
    assert "127.0.0.1:1" in error
    assert "Connection refused" in error
    assert "skylog serve" in error
