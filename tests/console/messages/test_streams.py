"""Following, searching and exporting: streams as browsers and programs read them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from skylog.client import Admin, Connection
from skylog.console.messages.export import PIECE_BYTES, export
from skylog.console.messages.feed import MAX_FEEDS
from skylog.console.messages.follow import ROWS_PER_S
from skylog.console.messages.query import Query
from skylog.console.messages.search import search
from skylog.console.messages.selection import choose
from skylog.console.messages.view import SHOWN_VALUE_BYTES
from skylog.message_document import as_object
from skylog.testing import BrokerProcess, consume
from tests.console.conftest import running_console
from tests.console.messages.conftest import START_MS, Topic

MakeTopic = Callable[..., Topic]
Event = tuple[str, str]


@contextmanager
def events(topic: Topic, rest: str) -> Iterator[Iterator[Event]]:
    """The events of a stream, as a browser's EventSource takes them."""
    with topic.console.client.stream("GET", f"{topic.path}{rest}", headers={"accept": "text/event-stream"}) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        yield _parse(stream.iter_lines())


def _parse(lines: Iterator[str]) -> Iterator[Event]:
    name, data = "", []
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and name:
            yield name, "\n".join(data)
            name, data = "", []


def lines(topic: Topic, rest: str) -> list[dict[str, Any]]:
    response = topic.console.get(f"{topic.path}{rest}", headers={"accept": "application/x-ndjson"})
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_new_messages_are_shown_live(make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    topic.send(["before"])
    with events(topic, "/follow") as stream:
        assert next(stream) == ("open", topic.name)
        topic.send(["<b>fresh</b>"], key="k")
        name, html = next(stream)
        assert name == "rows"
        assert "&lt;b&gt;fresh&lt;/b&gt;" in html
        assert "before" not in html
        assert next(stream) == ("count", '{"shown":1,"skipped":0}')


def test_one_partition_is_followed_alone(make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with events(topic, "/follow?partition=1") as stream:
        next(stream)
        topic.send(["other"], partition=0)
        topic.send(["wanted"], partition=1)
        assert "wanted" in next(stream)[1]


def test_messages_beyond_the_rate_limit_are_counted(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with events(topic, "/follow") as stream:
        next(stream)
        topic.send(range(5000))
        shown = skipped = 0
        last = ""
        while shown + skipped < 5000:
            name, data = next(stream)
            if name == "count":
                shown += json.loads(data)["shown"]
                skipped += json.loads(data)["skipped"]
            else:
                last = data
    assert shown + skipped == 5000
    assert ROWS_PER_S // 2 <= shown < 1000
    assert ":4999<" in last  # the newest is never left out


def test_a_follower_is_notified_when_the_broker_is_unreachable_and_when_it_is_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, running_console(broker) as console:
        topic = Topic(console, "followed", 1)
        with events(topic, "/follow") as stream:
            assert next(stream)[0] == "open"
            broker.kill()
            assert next(stream) == ("unreachable", f"{broker.bootstrap} is unreachable; reconnecting")
            broker.start()
            assert next(stream) == ("live", "followed")
            topic.send(["after"])
            assert "after" in next(stream)[1]


def test_a_search_keeps_only_what_it_shows_of_its_matches(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send(b"needle" + b"x" * 900_000 for _ in range(100))
    connection = Connection(topic.bootstrap)
    ranges = choose(Admin(connection), topic.name, None)
    updates = search(connection, ranges, Query("needle").predicate(), 1000)
    matches = [match for update in updates for match in update.matches]
    assert len(matches) == 100
    assert {(len(match.value or b""), match.value_bytes) for match in matches} == {(SHOWN_VALUE_BYTES, 900_006)}


def test_an_export_comes_in_pieces_of_bounded_size(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send(b"x" * 50_000 for _ in range(40))
    connection = Connection(topic.bootstrap)
    ranges = choose(Admin(connection), topic.name, None)
    pieces = list(export(connection, ranges, None, 1000, "json"))
    assert max(map(len, pieces)) < PIECE_BYTES + 51_000
    assert b"".join(pieces).count(b"\n") == 40


def test_programs_follow_by_lines_and_miss_nothing(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    with topic.console.client.stream("GET", f"{topic.path}/follow.json") as stream:
        assert stream.headers["content-type"] == "application/x-ndjson"
        topic.send(range(300))
        found = []
        for line in stream.iter_lines():
            found.append(json.loads(line))
            if len(found) == 300:
                break
    assert found == [as_object(message) for message in consume(topic.bootstrap, topic.name, 300)]


def test_closed_streams_make_room_for_others(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    for _ in range(MAX_FEEDS + 4):
        address = f"{topic.console.url}{topic.path}/follow"
        with httpx.stream("GET", address, headers={"accept": "text/event-stream"}) as stream:
            assert stream.status_code == 200
            assert next(stream.iter_lines()) == "event: open"


def test_a_search_finds_the_newest_first_in_all_partitions(make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    topic.spread(3000, 4)
    found = lines(topic, "/search?q=77&in=value")
    wanted = [number for number in range(2999, -1, -1) if "77" in str(number)]
    assert [each["match"]["value"] for each in found if "match" in each] == wanted
    assert found[-1]["end"]["is_complete"]
    assert (found[-1]["end"]["scanned"], found[-1]["end"]["matches"]) == (3000, len(wanted))


def test_a_search_of_more_than_one_window_is_exact(make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    topic.spread(30_000, 2)
    document = topic.json("/search?q=999&in=value&limit=1000")
    assert [each["value"] for each in document["messages"]] == [
        number for number in range(29_999, -1, -1) if "999" in str(number)
    ]
    assert document["progress"]["scanned"] == document["total"] == 30_000


def test_a_search_ends_at_its_limit(make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    topic.spread(30_000, 4)
    document = topic.json("/search?q=1&in=value&limit=5")
    assert len(document["messages"]) == 5
    assert document["messages"][0]["value"] == 29_991
    assert not document["progress"]["is_complete"]
    assert document["progress"]["scanned"] < 30_000


def test_a_search_is_limited_by_times_and_partition(make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    topic.spread(100, 4)
    between = f"since={START_MS + 20_000}&until={START_MS + 30_000}"
    assert topic.values(f"/search?q=%24.a=1&{between}") == []
    document = topic.json(f"/search?q=2&in=value&{between}")
    assert [each["value"] for each in document["messages"]] == list(range(29, 19, -1))
    assert document["total"] == 10
    alone = topic.json(f"/search?q=2&in=value&partition=0&{between}")
    assert {each["partition"] for each in alone["messages"]} == {0}


def test_a_browser_sees_a_search_progress_and_can_leave_it(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send(b"<needle>" if number == 5 else b"hay" for number in range(40_000))
    with events(topic, "/search?q=needle") as stream:
        names = [name for name, _ in stream]
    assert names[-1] == "end"
    assert names.count("progress") >= 3
    assert names.count("rows") == 1
    for _ in range(MAX_FEEDS + 2):  # those that were left are not running any more
        address = f"{topic.console.url}{topic.path}/search?q=nothing"
        with httpx.stream("GET", address, headers={"accept": "text/event-stream"}) as left:
            assert left.status_code == 200


def test_exported_lines_are_those_of_tail(make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    topic.spread(500, 3)
    topic.send([None, b"\xff", b'{"a": 1}', "\u2028"], key=b"\xfe", partition=2, headers=[("h", b"\xff")])
    response = topic.console.get(f"{topic.path}/export?as=json")
    assert response.headers["content-disposition"] == f'attachment; filename="{topic.name}.jsonl"'
    expected = sorted(consume(topic.bootstrap, topic.name), key=lambda each: (each.partition, each.offset))
    assert [json.loads(line) for line in response.text.split("\n")[:-1]] == [as_object(each) for each in expected]


def test_no_cell_of_a_csv_is_read_as_a_formula(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    values = ["=1+1", "+x", "-x", "@sum", "\tx", "-5", 'plain, "quoted"\nline', None, "\n=1+1", "\r=1", "a;=1+1"]
    topic.send(values, key="=cmd()")
    response = topic.console.get(f"{topic.path}/export?as=csv")
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert [each["value"] for each in rows] == [
        "'=1+1",
        "'+x",
        "'-x",
        "'@sum",
        "'\tx",
        "-5",
        values[6],
        "",
        "'\n=1+1",
        "'\r=1",
        "a;=1+1",
    ]
    assert '"a;=1+1"' in response.text  # in quotes, or a spreadsheet that parts cells by `;` would see a formula
    assert {each["key"] for each in rows} == {"'=cmd()"}
    assert rows[3]["offset"] == "3"


@pytest.mark.parametrize(
    ("rest", "wanted"),
    [
        ("&limit=4", [0, 1, 2, 3]),
        ("&from=90&to=93", [90, 91, 92]),
        (f"&since={START_MS + 98_000}", [98, 99]),
        ("&q=77&in=value", [77]),
    ],
)
def test_a_selection_is_exported(make_topic: MakeTopic, request: Any, rest: str, wanted: list[int]) -> None:
    topic = request.getfixturevalue("numbers")
    assert [each["value"] for each in lines(topic, f"/export?as=json{rest}")] == wanted


@pytest.fixture(scope="module")
def numbers(console: Any) -> Topic:
    topic = Topic(console, "numbers", 1)
    topic.send(range(100))
    return topic
