"""Browsing messages anywhere in a topic, whatever they contain."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from skylog.client import Admin, Connection, Message, PartitionReader, Producer
from skylog.console.messages import browse
from skylog.console.messages.browse import READ_BYTES, read_page
from skylog.console.messages.selection import choose
from skylog.console.server.page import Page, view
from skylog.testing import BrokerProcess, wait_until
from tests.console.conftest import RunningConsole
from tests.console.messages.conftest import START_MS, Topic

MakeTopic = Callable[..., Topic]


@pytest.fixture(scope="module")
def plain_topic(console: RunningConsole) -> Topic:
    return Topic(console, "a-plain-topic", 1)


def walk(topic: Topic, first: str, link: str, field: str) -> Iterator[list[int]]:
    """The pages from one on, by the links to older or newer ones."""
    document = topic.json(first)
    while True:
        yield [message["value"] for message in document["messages"]]
        if document[link] is None:
            return
        document = topic.json(f"?limit=7&order={document['order']}&{field}={document[link]}")


def test_the_newest_messages_of_all_partitions_come_first(make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    topic.spread(200, 4)
    assert topic.values() == list(range(199, 149, -1))
    assert topic.values("?limit=3") == [199, 198, 197]


def test_the_links_to_older_messages_lead_through_the_whole_topic(make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    topic.spread(100, 4)
    pages = list(walk(topic, "?limit=7", "older", "before"))
    assert [number for page in pages for number in page] == list(range(99, -1, -1))
    assert max(map(len, pages)) == 7


def test_the_links_to_newer_messages_lead_through_the_whole_topic(make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    topic.spread(100, 4)
    pages = list(walk(topic, "?limit=7&offset=0", "newer", "after"))
    assert [number for page in pages for number in page] == list(range(100))


def test_the_newer_page_of_an_older_one_is_where_it_came_from(make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    topic.spread(60, 4)
    newest = topic.json("?limit=20")
    older = topic.json(f"?limit=20&before={newest['older']}")
    back = topic.json(f"?limit=20&after={older['newer']}")
    assert back["messages"] == newest["messages"]
    assert back["newer"] is None


def test_a_page_is_sought_by_partition_and_offset(make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    topic.send(range(100), partition=1)
    document = topic.json("?partition=1&offset=40&limit=3")
    assert [message["offset"] for message in document["messages"]] == [40, 41, 42]
    assert topic.values("?partition=0") == []
    assert topic.values("?partition=1&offset=1000000") == []  # behind the end there is nothing yet


def test_a_page_is_sought_by_time(make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    topic.spread(100, 4)
    assert topic.values(f"?time={START_MS + 50_000}&limit=3") == [50, 51, 52]
    assert topic.values("?time=2023-11-14T22:14:10Z&limit=2") == [50, 51]
    late = topic.json(f"?time={START_MS + 1_000_000}")
    assert late["messages"] == []
    assert topic.values(f"?limit=1&before={late['older']}") == [99]


def test_a_page_costs_the_same_anywhere_in_a_large_partition(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send(b"x" * 1000 for _ in range(60_000))

    def seconds(offset: int) -> float:
        started = time.monotonic()
        document = topic.json(f"?partition=0&offset={offset}&limit=20")
        assert [message["offset"] for message in document["messages"]] == list(range(offset, offset + 20))
        return time.monotonic() - started

    seconds(0)
    start = min(seconds(0) for _ in range(5))
    assert min(seconds(55_000) for _ in range(5)) < start * 3 + 0.05


def test_hostile_content_is_shown_as_text(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send([b"<script>alert(1)</script>"], key=b"<img src=x>", headers=[("<i>name</i>", b"<b>bold</b>")])
    topic.send(["\u202egnp.exe\x1b[31m\nsecond line"])
    for page in (topic.path, f"{topic.path}/0/0"):
        html = topic.console.get(page).text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        assert "&lt;img src=x&gt;" in html
        assert "&lt;b&gt;bold&lt;/b&gt;" in html
        assert "<script>alert" not in html
        assert "<i>name" not in html
    html = topic.console.get(topic.path).text
    assert "\\u202egnp.exe\\x1b[31m\nsecond line" in html


def test_a_header_whose_name_is_not_utf8_does_no_harm(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send_with_unreadable_header(b"value")
    topic.send(["after"])
    assert topic.values() == ["after", "value"]
    assert topic.values("/search?q=value") == ["value"]
    assert "a name is not UTF-8" in topic.console.get(f"{topic.path}/0/0").text
    assert topic.console.get(f"{topic.path}/export").text.count("\n") == 2


def test_every_kind_of_value_has_its_form(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send([b'{"a":[1,2]}', None, b"", b"\xff\x00", "naïve", b'{"n":123456789012345678901234567890,"s":"\\ud800"}'])
    rows = topic.json("?offset=0")["messages"]
    assert [row["value"] for row in rows[:3]] == [{"a": [1, 2]}, None, ""]
    assert (rows[3]["value"], rows[3]["value_encoding"], rows[3]["value_bytes"]) == ("/wA=", "base64", 2)
    assert rows[4]["value"] == "naïve"
    assert "123456789012345678901234567890" in rows[5]["value"]  # JSON that only few could read is left as text
    html = topic.console.get(topic.path).text
    for word in ("tombstone", "empty", "binary", "no key", "ff 00"):
        assert word in html


def test_a_long_value_is_truncated_and_can_be_downloaded(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    value = "ä".encode() * 1_500_000
    topic.send([value])
    [row] = topic.json()["messages"]
    assert row["is_cut"]
    assert row["value_bytes"] == len(value)
    assert set(row["value"]) == {"ä"}
    assert len(topic.console.get(topic.path).content) < 30_000
    assert topic.json("/0/0")["message"]["is_cut"]
    download = topic.console.get(f"{topic.path}/0/0/value")
    assert download.content == value
    assert download.headers["content-type"] == "application/octet-stream"
    assert download.headers["content-disposition"].startswith("attachment;")


def test_deep_json_is_not_indented(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    deep = b"[" * 200 + b",".join([b"1"] * 1848) + b"]" * 200
    topic.send([deep] * 100)
    page = topic.console.get(f"{topic.path}?limit=100")
    assert page.text.count(deep.decode()) == 100
    assert len(page.content) < 100 * 2 * len(deep)


def test_a_heavy_page_is_rendered_in_a_thread() -> None:
    drawn_by = []

    class Drawing:
        def render(self, request: Request, page: Page) -> str:
            drawn_by.append(threading.current_thread())
            return page.title

    async def show(request: Request) -> Page:
        return Page("any.html", "drawn", {}, is_heavy="heavy" in request.url.path)

    app = Starlette(routes=[Route("/{kind}", view(show))])
    app.state.consoles = {"": Drawing()}

    async def visit() -> list[str]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://console") as client:
            return [(await client.get(path)).text for path in ("/heavy", "/light")]

    assert asyncio.run(visit()) == ["drawn", "drawn"]
    assert [thread is threading.current_thread() for thread in drawn_by] == [False, True]


def test_a_page_of_huge_messages_is_short_and_not_whole(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    count = READ_BYTES // 4_000_000 + 8
    topic.send(b"x" * 4_000_000 for _ in range(count))
    document = topic.json()
    offsets = [message["offset"] for message in document["messages"]]
    assert not document["is_whole"]
    assert 0 < len(offsets) < count
    assert offsets == list(range(count - 1, count - 1 - len(offsets), -1))  # the newest, without a gap
    assert topic.json(f"?limit=1&before={document['older']}")["messages"][0]["offset"] == offsets[-1] - 1


def test_a_page_of_huge_messages_costs_one_budget(make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = 0

    class CountingReader(PartitionReader):
        def read(self) -> list[Message]:
            nonlocal read_bytes
            messages = super().read()
            read_bytes += sum(len(message.raw) for message in messages)
            return messages

    monkeypatch.setattr(browse, "PartitionReader", CountingReader)
    topic = make_topic(1)
    topic.send(b"x" * 4_000_000 for _ in range(READ_BYTES // 4_000_000 + 8))
    held = choose(Admin(topic.bootstrap), topic.name, None)
    edges = {key: offsets.end_offset for key, offsets in held.items()}
    found = read_page(Connection(topic.bootstrap), held, edges, 50, backward=True)
    assert found.messages
    assert not found.is_whole
    assert read_bytes <= READ_BYTES + 2 * 4_000_000


def test_one_message_has_a_page_of_its_own(make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    topic.send(["a", "b", "c"], key="k", headers=[("h", b"1"), ("h", None)])
    document = topic.json("/0/1")
    assert (document["message"]["value"], document["older_offset"], document["newer_offset"]) == ("b", 0, 2)
    assert document["message"]["headers"] == [{"name": "h", "value": "1"}, {"name": "h", "value": None}]
    missing = topic.console.get(f"{topic.path}/0/3.json")
    assert missing.status_code == 404
    assert "no message at offset 3" in missing.json()["error"]


@pytest.mark.parametrize(
    "rest",
    [
        "?partition=x",
        "?partition=9",
        "?partition=-1",
        "?offset=-1",
        "?offset=99999999999999999999999",
        "/search?q=x&from=99999999999999999999999",
        "?offset=1&time=2",
        "?time=soon",
        f"?time={'9' * 5000}",
        "?limit=501",
        "?limit=0",
        "?before=0",
        "?after=0:x",
        "?order=random",
        "/9/0",
        "/0/x",
        f"/0/{'9' * 5000}",
        "/search?q=x&in=nowhere",
        "/search?q=%24.a",
        "/search?q=x&limit=100000",
        "/search?q=x&since=1&from=1",
        "/export?as=exe",
        "/export?limit=0",
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(plain_topic: Topic, rest: str) -> None:
    response = plain_topic.console.get(f"{plain_topic.path}{rest}", headers={"accept": "application/json"})
    assert response.status_code == 400, response.text
    assert response.json()["error"]


def test_empty_offsets_are_skipped(tmp_path: Path) -> None:
    quick = {"log.cleaner.backoff.ms": "50", "log.flush.offset.checkpoint.interval.ms": "50"}
    compacted = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
    with BrokerProcess(tmp_path, quick) as broker:
        admin, connection = Admin(broker.bootstrap), Connection(broker.bootstrap)
        admin.create_topic("compacted", 1, configs=compacted)
        with Producer(broker.bootstrap, config={"batch.size": 2000}) as producer, producer.batch():
            for number in range(5000):
                producer.send("compacted", b"x" * 50, f"key-{number % 5}")

        def pages(limit: int, *, backward: bool) -> list[Any]:
            held = choose(admin, "compacted", None)
            edges = {key: offsets.end_offset if backward else offsets.start_offset for key, offsets in held.items()}
            found = read_page(connection, held, edges, limit, backward=backward)
            assert found.is_whole
            return [message.offset for message in found.messages]

        def is_cleaned() -> bool:
            return len(pages(4999, backward=False)) < 1000

        def all_pages_agree() -> bool:
            """False if the topic was compacted again in between."""
            whole = pages(5000, backward=False)
            parts = pages(5000, backward=True), pages(3, backward=False), pages(3, backward=True)
            return parts == (whole[::-1], whole[:3], whole[:-4:-1])

        wait_until(is_cleaned, "the topic to be compacted")
        wait_until(all_pages_agree, "pages in both directions with the same messages")
