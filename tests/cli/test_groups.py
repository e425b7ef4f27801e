"""`skylog groups` as a command, with real consumers in the groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from skylog.client import Connection, ConsumerGroups, GroupNotFoundError

from .conftest import Skylog, until
from .terminal import in_terminal


@pytest.fixture
def group(topic: str) -> str:
    """A name that nothing has used."""
    return f"readers-of-{topic}"


def consumer(skylog: Skylog, group: str, client_id: str = "reader") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": skylog.bootstrap,
            "group.id": group,
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


@contextmanager
def members(skylog: Skylog, group: str, topic: str, *client_ids: str) -> Iterator[list[Consumer]]:
    """Consumers that have joined the group and share its partitions."""
    joining = [consumer(skylog, group, client_id) for client_id in client_ids]
    for each in joining:
        each.subscribe([topic])
    try:
        until(lambda: _have_settled(joining, skylog, group))
        yield joining
    finally:
        for each in joining:
            _leave(each)


def _leave(member: Consumer) -> None:
    """Unassign the partitions before closing: librdkafka may deadlock if a close has to answer a rebalance."""
    member.unsubscribe()
    until(lambda: member.poll(0.02) is None and not member.assignment())
    member.close()


def _have_settled(joining: list[Consumer], skylog: Skylog, group: str) -> bool:
    for each in joining:
        each.poll(0.02)
    try:
        [found] = ConsumerGroups(Connection(skylog.bootstrap)).describe_groups([group])
    except GroupNotFoundError:
        return False
    return found.state == "Stable" and len(found.members) == len(joining)


@contextmanager
def member(skylog: Skylog, group: str, topic: str, client_id: str = "reader") -> Iterator[Consumer]:
    with members(skylog, group, topic, client_id) as [each]:
        yield each


def first_offset(skylog: Skylog, group: str, topic: str) -> int:
    """The first offset read by a consumer that joins the group now."""
    messages: list[Any] = []

    def has_read() -> bool:
        messages.extend(reading.consume(1, 0.05))
        return bool(messages)

    reading = consumer(skylog, group)
    reading.subscribe([topic])
    try:
        until(has_read)
    finally:
        reading.close()
    assert messages[0].error() is None
    offset: int = messages[0].offset()
    return offset


def commit(skylog: Skylog, group: str, **offsets: dict[int, int]) -> None:
    """Commit like a consumer with manually assigned partitions, which is not a member."""
    committing = consumer(skylog, group)
    wanted = [TopicPartition(topic, number, at) for topic, each in offsets.items() for number, at in each.items()]
    committing.commit(offsets=wanted, asynchronous=False)
    committing.close()


def fill(skylog: Skylog, topic: str, *counts: int) -> None:
    """Create a topic with `counts` messages in its partitions."""
    skylog.create(topic, len(counts))
    skylog.send(topic, *({"partition": number} for number, count in enumerate(counts) for _ in range(count)))


def committed(skylog: Skylog, group: str) -> dict[tuple[str, int], int | None]:
    [description] = skylog.json("groups", "describe", group, "--json")
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in description["partitions"]}


# -- list and describe


def test_the_list_adds_up_the_lag_of_all_partitions(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 5, 7)
    with member(skylog, group, topic) as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        listed = {row["group"]: row for row in skylog.json("groups", "list", "--json")}
        assert listed[group] == {
            "group": group,
            "type": "classic",
            "state": "Stable",
            "protocol": "range",
            "members": 1,
            "lag": 2 + 7,
        }
    row = next(line for line in skylog("groups", "list").stdout.splitlines() if line.split()[0] == group)
    assert row.split() == [group, "classic", "Empty", "-", "0", "9"]


def test_describe_shows_offsets_lag_and_member_of_each_partition(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 5, 7, 4)
    admin = AdminClient({"bootstrap.servers": skylog.bootstrap})
    deleted = admin.delete_records([TopicPartition(topic, 2, 1)])
    assert [future.result(20).low_watermark for future in deleted.values()] == [1]
    with member(skylog, group, topic, "billing") as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 7)], asynchronous=False)
        member_id = reader.memberid()
        [description] = skylog.json("groups", "describe", group, "--json")
        lines = skylog("groups", "describe", group).stdout.splitlines()
    expected = [(0, 3, 0, 5, 2), (1, 7, 0, 7, 0), (2, None, 1, 4, 3)]
    keys = ("partition", "committed_offset", "start_offset", "end_offset", "lag")
    assert description["partitions"] == [
        {"topic": topic, "member_id": member_id, **dict(zip(keys, row, strict=True))} for row in expected
    ]
    assert {key: description[key] for key in ("group", "state", "protocol", "lag")} == {
        "group": group,
        "state": "Stable",
        "protocol": "range",
        "lag": 5,
    }
    [shown] = description["members"]
    assert (shown["member_id"], shown["client_id"], shown["host"]) == (member_id, "billing", "127.0.0.1")
    assert shown["partitions"] == [{"topic": topic, "partition": number} for number in range(3)]
    assert lines[0] == f"{group}  Stable, range, 1 member, total lag 5"
    assert lines[2].split() == [topic, "0", "3", "5", "2", "billing", "127.0.0.1", member_id]
    assert lines[4].split() == [topic, "2", "-", "4", "3", "billing", "127.0.0.1", member_id]


def test_describe_shows_epochs_and_targets_of_the_consumer_protocol(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 5, 7)
    reader = Consumer({"bootstrap.servers": skylog.bootstrap, "group.id": group, "group.protocol": "consumer"})
    try:
        reader.subscribe([topic])
        until(lambda: reader.poll(0.1) is None and len(reader.assignment()) == 2)
        [description] = skylog.json("groups", "describe", group, "--json")
        lines = skylog("groups", "describe", group).stdout.splitlines()
        listed = {row["group"]: row for row in skylog.json("groups", "list", "--json")}
    finally:
        reader.close()
    assert listed[group]["type"] == description["type"] == "consumer"
    assert (description["epoch"], description["target_epoch"], description["protocol"]) == (1, 1, "uniform")
    [shown] = description["members"]
    assert shown["epoch"] == 1
    assert shown["target"] == shown["partitions"] == [{"topic": topic, "partition": number} for number in range(2)]
    heading = "consumer protocol, Stable, uniform, 1 member, epoch 1, assignment epoch 1, total lag 12"
    assert lines[0] == f"{group}  {heading}"


def test_a_member_without_partitions_is_shown(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 1)
    with members(skylog, group, topic, "one", "two"):
        [description] = skylog.json("groups", "describe", group, "--json")
        lines = skylog("groups", "describe", group).stdout.splitlines()
    by_count = {len(each["partitions"]): each["member_id"] for each in description["members"]}
    assert sorted(by_count) == [0, 1]
    assert lines[0] == f"{group}  Stable, range, 2 members, total lag 1"
    assert [line.split()[-1] for line in lines if line.split()[:5] == ["-"] * 5] == [by_count[0]]


def test_a_group_whose_members_have_gone_keeps_the_partitions_it_never_committed(
    skylog: Skylog, topic: str, group: str
) -> None:
    fill(skylog, topic, 5, 7)
    with member(skylog, group, topic) as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    [description] = skylog.json("groups", "describe", group, "--json")
    assert (description["state"], description["members"], description["lag"]) == ("Empty", [], 1 + 7)
    rows = [(row["committed_offset"], row["lag"], row["member_id"]) for row in description["partitions"]]
    assert rows == [(4, 1, None), (None, 7, None)]


def test_a_group_that_never_had_members_has_the_partitions_it_committed(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 5, 7)
    commit(skylog, group, **{topic: {1: 2}})
    assert committed(skylog, group) == {(topic, 1): 2}
    assert skylog("groups", "describe", group).stdout.splitlines()[0] == f"{group}  Empty, 0 members, total lag 5"


def test_an_unknown_group_names_the_nearest(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 1)
    commit(skylog, group, **{topic: {0: 1}})
    error = skylog("groups", "describe", group, f"{group}x", code=1).stderr
    assert error.startswith(f"error: there is no group '{group}x'; did you mean {group}")
    assert "skylog groups list" in skylog("groups", "describe", "?", code=1).stderr


def test_a_group_name_drives_neither_the_terminal_nor_the_markup(skylog: Skylog, topic: str) -> None:
    fill(skylog, topic, 1)
    commit(skylog, "\x1b[31m[red]x[/red]", **{topic: {0: 1}})
    assert skylog("groups", "describe", "\x1b[31m[red]x[/red]").stdout.startswith("\\x1b[31m[red]x[/red]  Empty")
    assert "\x1b" not in skylog("groups", "list").stdout


# -- reset


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 5),
        (["--to-offset", "2"], 2),
        (["--shift-by", "-1"], 2),
        (["--shift-by", "1"], 4),
        (["--to-time", "1970-01-01T00:00:02.500Z"], 2),
        (["--to-time", "1h"], 5),
        (["--to-time", "9999w"], 0),
    ],
)
def test_after_a_reset_consumers_go_on_at_the_new_offset(
    skylog: Skylog, topic: str, group: str, target: list[str], expected: int
) -> None:
    skylog.create(topic, retention_ms="-1")
    skylog.send(topic, *({"timestamp": 1000 * number} for number in range(1, 6)))
    commit(skylog, group, **{topic: {0: 3}})
    done = skylog("groups", "reset", group, *target, "--topic", topic, "--yes")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "FROM", "TO", "LAG"],
        [topic, "0", "3", str(expected), str(5 - expected)],
    ]
    assert done.stderr == f"reset group '{group}' in 1 partition\n"
    skylog.send(topic, {})
    assert first_offset(skylog, group, topic) == expected


def test_all_topics_are_those_that_the_group_reads(skylog: Skylog, topic: str, group: str) -> None:
    for each in (topic, f"{topic}-more", f"{topic}-other"):
        fill(skylog, each, 3, 3)
    commit(skylog, group, **{topic: {0: 1, 1: 2}, f"{topic}-more": {1: 0}})
    document = skylog.json("groups", "reset", group, "--to-latest", "--all-topics", "--yes", "--json")
    moves = [(row["topic"], row["partition"], row["from_offset"], row["to_offset"]) for row in document["partitions"]]
    assert moves == [(topic, 0, 1, 3), (topic, 1, 2, 3), (f"{topic}-more", 1, 0, 3)]
    assert committed(skylog, group) == {(topic, 0): 3, (topic, 1): 3, (f"{topic}-more", 1): 3}


def test_a_dry_run_shows_the_same_and_changes_nothing(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 3)
    commit(skylog, group, **{topic: {0: 2}})
    arguments = ("groups", "reset", group, "--to-earliest", "--all-topics")
    dry = skylog(*arguments, "--dry-run")
    assert "nothing was changed" in dry.stderr
    assert committed(skylog, group) == {(topic, 0): 2}
    assert skylog(*arguments, "--yes").stdout == dry.stdout
    assert committed(skylog, group) == {(topic, 0): 0}


def test_an_offset_outside_of_the_log_is_clamped_with_a_note(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 5, 2)
    commit(skylog, group, **{topic: {0: 3, 1: 1}})
    arguments = ("groups", "reset", group, "--shift-by", 2, "--topic", topic, "--yes")
    assert f"{topic}-1 has offsets from 0 to 2: 3 was changed to 2" in skylog(*arguments).stderr
    assert committed(skylog, group) == {(topic, 0): 5, (topic, 1): 2}
    document = skylog.json("groups", "reset", group, "--shift-by", "-5", "--all-topics", "--dry-run", "--json")
    rows = [(row["to_offset"], row["wanted_offset"], row["clamped"]) for row in document["partitions"]]
    assert rows == [(0, 0, False), (0, -3, True)]


def test_a_group_is_created_by_a_reset_of_some_partitions(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 5, 2, 4)
    done = skylog("groups", "reset", group, "--to-latest", "--topic", f"{topic}:0,2", "--topic", f"{topic}:2", "--yes")
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        [topic, "0", "-", "5", "0"],
        [topic, "2", "-", "4", "0"],
    ]
    assert committed(skylog, group) == {(topic, 0): 5, (topic, 2): 4}


def test_active_members_are_named_and_the_group_is_left_alone(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 3)
    with member(skylog, group, topic, "billing-7") as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        reset = ("groups", "reset", group, "--to-earliest", "--all-topics")
        refusals = [skylog(*reset, "--yes", code=1), skylog("groups", "delete", group, "--yes", code=1)]
        for refusal in refusals:
            assert refusal.stdout == ""
            assert "has active members: billing-7 at 127.0.0.1; stop them" in refusal.stderr
        dry = skylog(*reset, "--dry-run")
        assert dry.stdout.splitlines()[1].split() == [topic, "0", "2", "0", "3"]
        assert "the reset would fail now: group" in dry.stderr
        assert committed(skylog, group) == {(topic, 0): 2}
    skylog(*reset, "--yes")
    assert committed(skylog, group) == {(topic, 0): 0}


def test_reset_without_a_terminal_requires_yes(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 3)
    refused = skylog("groups", "reset", group, "--to-latest", "--topic", topic, code=1)
    assert "--dry-run" in refused.stderr
    assert "--yes" in refused.stderr
    assert f"there is no group '{group}'" in skylog("groups", "describe", group, code=1).stderr


@pytest.mark.parametrize(("answer", "code", "expected"), [("n", 1, 1), ("y", 0, 3)])
def test_reset_shows_what_it_would_do_and_asks_in_a_terminal(
    skylog: Skylog, topic: str, group: str, answer: str, code: int, expected: int
) -> None:
    fill(skylog, topic, 3)
    commit(skylog, group, **{topic: {0: 1}})
    with in_terminal(skylog, "groups", "reset", group, "--to-latest", "--topic", topic) as (terminal, process):
        terminal.wait_for(f"Reset group {group} in 1 partition?")
        assert "PARTITION" in terminal.seen
        terminal.type(f"{answer}\n")
        assert process.wait(20) == code
    assert committed(skylog, group) == {(topic, 0): expected}


@pytest.mark.parametrize(
    ("arguments", "explanation"),
    [
        (["--all-topics"], "choose one of --to-earliest"),
        (["--to-earliest", "--to-offset", "0", "--all-topics"], "choose one of --to-earliest"),
        (["--to-earliest"], "choose the partitions"),
        (["--to-earliest", "--topic", "x", "--all-topics"], "choose the partitions"),
        (["--to-earliest", "--topic", "x:"], "expected TOPIC or TOPIC:0,1"),
        (["--to-time", "soon", "--all-topics"], "for --to-time: 'soon' is not a time"),
        (["--to-offset", "-1", "--all-topics"], "'--to-offset'"),
    ],
)
def test_a_reset_with_missing_or_conflicting_options_is_a_usage_error(
    skylog: Skylog, arguments: list[str], explanation: str
) -> None:
    assert explanation in skylog("groups", "reset", "g", *arguments, code=2).stderr


def test_a_reset_of_an_unknown_name_suggests_a_known_one(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 1, 1)
    to_latest = ("groups", "reset", group, "--to-latest", "--yes")
    assert f"there is no group '{group}'" in skylog(*to_latest, "--all-topics", code=1).stderr
    assert f"did you mean {topic}" in skylog(*to_latest, "--topic", f"{topic}x", code=1).stderr
    assert "has no partition 2: it has 2" in skylog(*to_latest, "--topic", f"{topic}:1,2", code=1).stderr
    shift = ("groups", "reset", group, "--shift-by", 1, "--topic", topic, "--yes")
    assert f"has committed nothing in {topic}-0" in skylog(*shift, code=1).stderr


# -- delete


def test_delete_of_several_deletes_none_if_one_is_not_there(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 1)
    names = [f"{group}-a", f"{group}-b"]
    for name in names:
        commit(skylog, name, **{topic: {0: 1}})
    assert f"there is no group '{group}-c'" in skylog("groups", "delete", *names, f"{group}-c", "--yes", code=1).stderr
    assert len(skylog.json("groups", "describe", *names, "--json")) == 2
    assert "--yes" in skylog("groups", "delete", *names, code=1).stderr
    skylog("groups", "delete", *names, "--yes")
    assert not {row["group"] for row in skylog.json("groups", "list", "--json")} & set(names)


def test_delete_asks_in_a_terminal_and_takes_no_for_an_answer(skylog: Skylog, topic: str, group: str) -> None:
    fill(skylog, topic, 1, 1)
    commit(skylog, group, **{topic: {0: 1, 1: 1}})
    with in_terminal(skylog, "groups", "delete", group) as (terminal, process):
        terminal.wait_for(f"Delete {group} with 2 committed offsets?")
        terminal.type("n\n")
        assert process.wait(20) == 1
    assert committed(skylog, group) == {(topic, 0): 1, (topic, 1): 1}


def test_an_unreachable_broker_is_reported_within_seconds_with_what_to_do() -> None:
    error = Skylog("127.0.0.1:1")("groups", "list", code=1).stderr
    assert "127.0.0.1:1" in error
    assert "skylog serve" in error
