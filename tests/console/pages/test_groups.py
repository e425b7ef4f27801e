"""`/groups` and `/group` as HTML and as JSON."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from skylog.client import Admin, ConsumerGroups, Producer, ResetTo
from skylog.testing import produce, wait_until
from tests.console.conftest import RunningConsole, running_console

HOSTILE = "<script>alert('x')</script>\"&?name=/%"


class Groups:
    """Makes topics and groups for a test, and asks the console about them."""

    def __init__(self, console: RunningConsole) -> None:
        self.console = console
        self.bootstrap = console.broker.bootstrap
        self.client = ConsumerGroups(self.bootstrap)
        self.producer = Producer(self.bootstrap)

    def make(self, group: str, topic: str, *, partitions: int = 3, messages: int = 10, at: int | None = 4) -> None:
        """Create a topic with `messages` in each partition, and a group at offset `at` of each."""
        Admin(self.bootstrap).create_topic(topic, partitions)
        with self.producer.batch():
            for number in range(partitions * messages):
                self.producer.send(topic, b"x", partition=number % partitions)
        if at is not None:
            moves = [f"{topic}:{number}:{at}" for number in range(partitions)]
            response = self.send(group, action="reset", move=moves)  # after which the console looks at the groups
            assert response.status_code == 200, response.text

    def page(self, group: str) -> Any:
        return self.console.json(f"/group?{httpx.QueryParams(name=group)}")

    def listed(self, **query: str) -> list[str]:
        found: Any = self.console.json(f"/groups?{httpx.QueryParams(**query)}")
        return [row["name"] for row in found["groups"]]

    def committed(self, group: str) -> list[int | None]:
        return [each["committed_offset"] for each in self.page(group)["partitions"]]

    def send(self, group: str, **fields: object) -> httpx.Response:
        """A POST of a program."""
        url = f"/group?{httpx.QueryParams(name=group)}"
        return self.console.client.post(url, json=fields, headers={"accept": "application/json"})

    def preview(self, group: str, **fields: object) -> Any:
        response = self.send(group, action="preview", **fields)
        assert response.status_code == 200, response.text
        return response.json()

    def refusal(self, group: str, status: int = 400, **fields: object) -> str:
        response = self.send(group, **fields)
        assert response.status_code == status, response.text
        error: str = response.json()["error"]
        return error


@pytest.fixture(scope="module")
def groups(console: RunningConsole) -> Iterator[Groups]:
    found = Groups(console)
    yield found
    found.producer.close(10)


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """Of a group and its topic, which no other test has."""
    return f"groups-{next(_numbers)}"


@contextmanager
def member(bootstrap: str, group: str, topic: str, **more: str) -> Iterator[Consumer]:
    settings = {
        "group.id": group,
        "client.id": "reader-1",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, **more})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1), "a message for the member")
        yield consumer
    finally:
        consumer.close()


def hidden_fields(html: str) -> dict[str, list[str]]:
    """Those of the form that does the reset."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', html):
        found.setdefault(unescape(key), []).append(unescape(value))
    return found


# -- the list and the page of a group


def test_a_group_without_members_shows_how_far_it_is_in_each_partition(groups: Groups, name: str) -> None:
    groups.make(name, name)
    page = groups.page(name)
    assert (page["state"], page["lag"], page["member_count"], page["topics"]) == ("Empty", 18, 0, [name])
    first = page["partitions"][0]
    assert (first["topic"], first["partition"]) == (name, 0)
    assert (first["committed_offset"], first["start_offset"], first["end_offset"], first["lag"]) == (4, 0, 10, 6)


def test_a_partition_without_messages_is_shown_and_can_be_chosen(groups: Groups, name: str) -> None:
    groups.make(name, name, partitions=1, messages=0, at=0)
    [partition] = groups.page(name)["partitions"]
    assert (partition["start_offset"], partition["end_offset"], partition["lag"]) == (0, 0, 0)
    assert f'value="{name}:0"' in groups.console.get(f"/group?{httpx.QueryParams(name=name)}").text


def test_members_are_shown_with_their_client_and_what_they_read(groups: Groups, name: str) -> None:
    groups.make(name, name, at=None)
    with member(groups.bootstrap, name, name):
        page = groups.page(name)
        html = groups.console.get(f"/group?{httpx.QueryParams(name=name)}").text
    [reader] = page["members"]
    assert (reader["client_id"], reader["host"], reader["partitions"]) == ("reader-1", "127.0.0.1", {name: [0, 1, 2]})
    assert {each["client_id"] for each in page["partitions"]} == {"reader-1"}
    assert "A group with members cannot be reset" in html


def test_members_of_the_consumer_protocol_are_shown_with_epoch_and_target(groups: Groups, name: str) -> None:
    groups.make(name, name, at=None)
    with member(groups.bootstrap, name, name, **{"group.protocol": "consumer"}):
        page = groups.page(name)
        html = groups.console.client.get(f"/group?{httpx.QueryParams(name=name)}").text
    assert (page["type"], page["state"], page["epoch"], page["target_epoch"]) == ("consumer", "Stable", 1, 1)
    [reader] = page["members"]
    assert (reader["epoch"], reader["target"], reader["partitions"]) == (1, {name: [0, 1, 2]}, {name: [0, 1, 2]})
    assert "<td>reached</td>" in html


def test_the_list_has_every_group_and_can_be_filtered_by_group_and_by_topic(groups: Groups, name: str) -> None:
    group = f"readers of {name}"
    groups.make(group, name)
    wait_until(lambda: group in groups.listed(), "the next snapshot of the groups")
    assert groups.listed(q=group.upper()) == [group]
    assert groups.listed(q=name.upper()) == [group]
    assert groups.listed(q="no such group") == []


def test_the_largest_lag_comes_first_and_the_list_sorts_by_any_column(groups: Groups, name: str) -> None:
    groups.make(f"{name}-near", f"{name}-near", at=9)
    groups.make(f"{name}-zfar", f"{name}-zfar", at=0)
    wait_until(lambda: len(groups.listed(q=f"{name}-")) == 2, "the next snapshot of the groups")
    far, near = f"{name}-zfar", f"{name}-near"
    assert groups.listed(q=f"{name}-") == [far, near]
    assert groups.listed(q=f"{name}-", sort="lag") == [near, far]
    assert groups.listed(q=f"{name}-", sort="name") == [near, far]
    for column in ("type", "state", "members", "behind", "pace", "reads", "left", "topics"):
        assert sorted(groups.listed(q=f"{name}-", sort=f"-{column}")) == [near, far]
    assert groups.listed(q=f"{name}-", pace="caught up") == []


def test_the_lag_over_time_is_plotted_for_the_group_and_by_partition(groups: Groups, name: str) -> None:
    groups.make(name, name)
    wait_until(lambda: groups.page(name)["lag_history"]["group"], "a point of the plot")
    history = groups.page(name)["lag_history"]
    assert history["group"][-1][1] == 18
    assert {label: points[-1][1] for label, points in history["partitions"].items()} == {
        f"{name}-{number}": 6 for number in range(3)
    }
    html = groups.console.get(f"/group?{httpx.QueryParams(name=name)}").text
    assert 'aria-label="Lag of the group: now lag 18' in html
    assert groups.page(name)["partitions"][0]["commit_unchanged_ms"] is not None


def test_the_name_of_a_group_may_be_anything_and_is_shown_as_text(groups: Groups, name: str) -> None:
    groups.make(HOSTILE, name)
    assert groups.page(HOSTILE)["name"] == HOSTILE
    wait_until(lambda: HOSTILE in groups.listed(), "the next snapshot of the groups")
    preview = groups.console.post(f"/group?{httpx.QueryParams(name=HOSTILE)}", action="preview", to="latest").text
    for html in (
        groups.console.get("/groups").text,
        groups.console.get(f"/group?{httpx.QueryParams(name=HOSTILE)}").text,
        preview,
    ):
        assert "alert(&#39;x&#39;)" in html
        assert "<script>alert" not in html


@pytest.mark.parametrize("query", ["name=no+such+group", "name=%ff"])
def test_a_group_that_is_not_there_is_not_found(console: RunningConsole, query: str) -> None:
    assert console.get(f"/group?{query}").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/group", "/group?name=", "/group?name=a%00b", f"/group?name={'a' * 32_001}", "/groups?page=0", "/groups?sort=x"],
    ids=["no name", "empty", "zero byte", "too long", "page", "order"],
)
def test_an_invalid_query_is_refused(console: RunningConsole, path: str) -> None:
    assert console.get(path).status_code == 400


# -- resetting


@pytest.mark.parametrize(
    ("fields", "targets"),
    [
        ({"to": "earliest"}, [0, 0, 0]),
        ({"to": "latest"}, [10, 10, 10]),
        ({"to": "offset", "value": 7}, [7, 7, 7]),
        ({"to": "shift", "value": -1}, [3, 3, 3]),
        ({"to": "time", "value": "2020-01-01T00:00"}, [0, 0, 0]),
        ({"to": "time", "value": "2100-01-01T00:00+01:00"}, [10, 10, 10]),
        ({"to": "time", "value": "9" * 18}, [10, 10, 10]),
    ],
)
def test_a_preview_shows_where_each_partition_goes_and_changes_nothing(
    groups: Groups, name: str, fields: dict[str, object], targets: list[int]
) -> None:
    groups.make(name, name)
    preview = groups.preview(name, **fields)
    assert [move["to_offset"] for move in preview["moves"]] == targets
    assert [move["from_offset"] for move in preview["moves"]] == [4, 4, 4]
    assert preview["skipped"] == sum(max(to - 4, 0) for to in targets)
    assert preview["repeated"] == sum(max(4 - to, 0) for to in targets)
    assert groups.committed(name) == [4, 4, 4]


def test_a_target_outside_of_the_log_is_moved_to_its_end_and_the_preview_shows_it(groups: Groups, name: str) -> None:
    groups.make(name, name, partitions=1)
    [move] = groups.preview(name, to="offset", value=5000)["moves"]
    assert (move["wanted_offset"], move["to_offset"], move["clamped"], move["skipped"]) == (5000, 10, True, 6)


def test_the_forms_of_the_page_reset_a_group_without_script(groups: Groups, name: str) -> None:
    groups.make(name, name)
    url = f"/group?{httpx.QueryParams(name=name)}"
    preview = groups.console.post(url, action="preview", to="shift", value="-2", topic=name)
    assert preview.status_code == 200
    assert "nothing has been changed" in preview.text
    fields = hidden_fields(preview.text)
    assert fields["move"] == [f"{name}:{number}:2:4" for number in range(3)]
    done = groups.console.post(url, **fields)
    assert done.status_code == 303
    assert groups.committed(name) == [2, 2, 2]
    assert "The group was reset in 3 partitions" in groups.console.get(done.headers["location"]).text


def test_chosen_partitions_are_moved_and_the_others_are_left(groups: Groups, name: str) -> None:
    groups.make(name, name)
    preview = groups.preview(name, to="latest", partition=[f"{name}:0", f"{name}:2"])
    groups.send(name, action="reset", move=[move["move"] for move in preview["moves"]])
    assert groups.committed(name) == [10, 4, 10]


def test_each_partition_can_have_a_separate_target(groups: Groups, name: str) -> None:
    groups.make(name, name, partitions=6)
    own = {
        f"target:{name}:0": "earliest",
        f"target:{name}:1": "latest",
        f"target:{name}:2": "9",
        f"target:{name}:3": "+3",
        f"target:{name}:4": "2020-01-01",
        f"target:{name}:5": "",
    }
    preview = groups.preview(name, where="partitions", to="latest", **own)
    moves = {move["partition"]: move["to_offset"] for move in preview["moves"]}
    assert moves == {0: 0, 1: 10, 2: 9, 3: 7, 4: 0}
    groups.send(name, action="reset", move=[move["move"] for move in preview["moves"]])
    assert groups.committed(name) == [0, 10, 9, 7, 0, 4]


def test_separate_targets_take_precedence_over_the_target_of_a_topic(groups: Groups, name: str) -> None:
    groups.make(name, name)
    preview = groups.preview(name, topic=name, to="latest", **{f"target:{name}:1": "-1"})
    assert [move["to_offset"] for move in preview["moves"]] == [10, 3, 10]


def test_a_reset_does_what_was_shown_although_messages_have_come_since(groups: Groups, name: str) -> None:
    groups.make(name, name, partitions=1)
    [move] = groups.preview(name, to="latest")["moves"]
    produce(groups.bootstrap, name, [b"later"])
    assert groups.send(name, action="reset", move=[move["move"]]).status_code == 200
    assert groups.committed(name) == [10]


def test_a_reset_is_refused_when_the_group_has_moved_since_the_preview(groups: Groups, name: str) -> None:
    groups.make(name, name, partitions=1)
    [move] = groups.preview(name, to="latest")["moves"]
    groups.client.reset(groups.client.plan_reset(name, ResetTo.OFFSET, 6))
    assert "has moved" in groups.refusal(name, action="reset", move=[move["move"]])
    assert groups.committed(name) == [6]


def test_a_reset_to_what_the_log_no_longer_has_is_refused(groups: Groups, name: str) -> None:
    groups.make(name, name, partitions=1)
    [move] = groups.preview(name, to="earliest")["moves"]
    Admin(groups.bootstrap).delete_records(name, {0: 8})
    assert "has the offsets from 8 up to 10" in groups.refusal(name, action="reset", move=[move["move"]])


def test_a_group_with_members_has_a_preview_but_is_not_reset_or_deleted(groups: Groups, name: str) -> None:
    groups.make(name, name)
    with member(groups.bootstrap, name, name):
        preview = groups.preview(name, to="earliest")
        assert "has active members: reader-1 at 127.0.0.1" in preview["refusal"]
        url = f"/group?{httpx.QueryParams(name=name)}"
        assert "Reset the group" not in groups.console.post(url, action="preview", to="earliest").text
        moves = [move["move"] for move in preview["moves"]]
        assert "stop them and try again" in groups.refusal(name, 409, action="reset", move=moves)
        assert "stop them and try again" in groups.refusal(name, 409, action="delete", confirm=name)
    assert groups.committed(name) == [4, 4, 4]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "'action' is missing"),
        ({"action": "dance"}, "'action' must be one of"),
        ({"action": "preview"}, "'to' is missing"),
        ({"action": "preview", "to": "moon"}, "'to' must be one of"),
        ({"action": "preview", "to": "offset"}, "'value' is missing"),
        ({"action": "preview", "to": "offset", "value": "-1"}, "'value' must be"),
        ({"action": "preview", "to": "offset", "value": "1" * 50}, "'value' must be"),
        ({"action": "preview", "to": "time", "value": "noon"}, "must be a time"),
        ({"action": "preview", "to": "time", "value": "9" * 5000}, "must be a time"),
        ({"action": "preview", "to": "latest", "partition": "no number"}, "TOPIC:NUMBER"),
        ({"action": "preview", "to": "latest", "where": "partitions"}, "choose at least one partition"),
        ({"action": "preview", "to": "latest", "target:t:0": "soon"}, "the target of t:0 must be"),
        ({"action": "reset"}, "nothing to move"),
        ({"action": "reset", "move": "x"}, "TOPIC:PARTITION:OFFSET"),
        ({"action": "reset", "move": ["t:0:1", "t:0:2"]}, "moved twice"),
        ({"action": "delete"}, "'confirm' must be its name"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused_with_a_reason(
    groups: Groups, fields: dict[str, Any], expected: str
) -> None:
    assert expected in groups.refusal("anybody", **fields)


def test_partitions_and_topics_that_are_not_there_are_refused(groups: Groups, name: str) -> None:
    groups.make(name, name)
    assert "no partition 9" in groups.refusal(name, action="preview", to="latest", partition=f"{name}:9")
    assert "no-such" in groups.refusal(name, 404, action="preview", to="latest", topic="no-such")
    assert "no-such" in groups.refusal(name, 404, action="reset", move="no-such:0:1")


def test_a_group_that_has_committed_nothing_in_a_partition_cannot_be_shifted_there(groups: Groups, name: str) -> None:
    groups.make(name, name, at=None)
    assert "committed nothing" in groups.refusal(name, action="preview", to="shift", value=1, topic=name)


# -- deleting


def test_a_group_is_deleted_once_its_name_was_typed(groups: Groups, name: str) -> None:
    groups.make(name, name)
    url = f"/group?{httpx.QueryParams(name=name)}"
    assert groups.console.post(url, action="delete", confirm="another").status_code == 400
    assert groups.committed(name) == [4, 4, 4]
    done = groups.console.post(url, action="delete", confirm=name)
    assert (done.status_code, done.headers["location"]) == (303, "/groups")
    assert groups.console.get(url).status_code == 404
    assert name not in groups.listed()


def test_a_console_that_is_read_only_shows_no_forms_and_resets_nothing(groups: Groups, name: str) -> None:
    groups.make(name, name)
    url = f"/group?{httpx.QueryParams(name=name)}"
    with running_console(groups.console.broker, "--read-only") as reader:
        html = reader.get(url).text
        assert "Reset offsets" not in html
        assert "Delete" not in html
        assert reader.post(url, action="delete", confirm=name).status_code == 403
    assert groups.committed(name) == [4, 4, 4]
