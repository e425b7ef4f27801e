"""The example blog, run as its README says and driven over HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from skylog.audit import AUDIT_TOPIC, Report, Tier
from tests.broker.process import BrokerProcess, until
from tests.events.conftest import events_in, messages_in, names_in

BLOG = Path(__file__).parents[2] / "examples" / "blog"
TOPIC = "blog_log"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@contextmanager
def blog(bootstrap: str, directory: Path) -> Iterator[httpx.Client]:
    """Run `uvicorn blog:app` until the end of the block."""
    environment = {
        **os.environ,
        "SKYLOG_BOOTSTRAP": bootstrap,
        "BLOG_DATABASE": str(directory / "blog.db"),
        "SKYLOG_AUDIT_DIR": str(directory / "audit"),
    }
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, descriptor = listener.getsockname()[1], listener.fileno()
        command = [sys.executable, "-m", "uvicorn", "blog:app", "--fd", str(descriptor), "--log-level", "warning"]
        process = subprocess.Popen(command, cwd=BLOG, env=environment, pass_fds=[descriptor])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def sign_up(client: httpx.Client) -> None:
    ada = {"name": "ada", "password": "engine", "organisation": "analytical"}
    assert client.post("/users", json=ada).status_code == 201
    assert client.post("/sessions", json=ada).status_code == 200


def test_what_users_do_is_in_the_log(broker: BrokerProcess, tmp_path: Path) -> None:
    with blog(broker.bootstrap, tmp_path) as client:
        sign_up(client)
        assert client.post("/posts", json={"title": "Notes", "body": "On the engine"}).json() == {"id": 1}
        assert client.post("/posts/1/comments", json={"body": "Note G"}).json() == {"id": 1}
        post = client.get("/posts/1").json()
        assert (post["title"], post["author"]) == ("Notes", "ada")
        assert [comment["body"] for comment in post["comments"]] == ["Note G"]
        assert [post["id"] for post in client.get("/posts").json()] == [1]
        assert client.post("/users/ada/followers").json() == {"follows": True}
        assert client.delete("/users/ada/followers").json() == {"follows": False}
        assert client.post("/users/bob/followers").status_code == 404
    found = events_in(broker.bootstrap, TOPIC)
    assert [event["event"] for event in found] == [
        "user.signup", "user.login", "post.create", "comment.create", "page.view", "post.show", "page.view",
        "user.follow", "user.unfollow",
    ]  # fmt: skip
    assert found[1]["attributes"] == {"name": "ada", "address": "127.0.0.1"}
    assert (found[3]["attributes"]["body"], found[-1]["attributes"]) == ("Note G", {"author": 1})
    created = found[2]
    assert created["attributes"] == {"id": 1, "title": "Notes", "body": "On the engine", "organisation": 1}
    assert created["user"]["id"] == 1
    assert created["user"]["created_at"] < created["timestamp"]
    assert created["application"] == "blog"
    views = [event["attributes"] for event in found if event["event"] == "page.view"]
    assert [(view["path"], view["organisation"]) for view in views] == [("/posts/1", 1), ("/posts", 1)]  # for `visits`
    assert {message.key() for message in messages_in(broker.bootstrap, TOPIC)} == {b"1"}


def test_visitors_who_are_not_logged_in_have_no_organisation(broker: BrokerProcess, tmp_path: Path) -> None:
    with blog(broker.bootstrap, tmp_path) as client:
        assert client.get("/posts").is_success
    (view,) = events_in(broker.bootstrap, TOPIC)
    assert view["attributes"] == {"path": "/posts", "referrer": None}


def test_the_audit_counts_every_event(broker: BrokerProcess, tmp_path: Path) -> None:
    with blog(broker.bootstrap, tmp_path) as client:
        for _ in range(30):
            assert client.get("/posts").is_success
        delivered = 'skylog_events_delivered_total{application="blog",topic="blog_log"} 30.0'
        until(lambda: delivered in client.get("/metrics").text, "the events")
    reports = [Report.decode(message.value() or b"") for message in messages_in(broker.bootstrap, AUDIT_TOPIC)]
    produced = [report for report in reports if report.tier is Tier.PRODUCED]
    assert {(report.source, report.topic) for report in produced} == {("blog", TOPIC)}
    assert sum(count.messages for report in produced for count in report.counts) == 30


def test_what_goes_wrong_is_answered_and_is_in_the_log(broker: BrokerProcess, tmp_path: Path) -> None:
    with blog(broker.bootstrap, tmp_path) as client:
        assert client.post("/posts", json={"title": "Notes", "body": "x"}).status_code == 401
        sign_up(client)
        assert client.post("/users", json={"name": "ada", "password": "x", "organisation": "y"}).status_code == 409
        assert client.post("/sessions", json={"name": "ada", "password": "wrong"}).status_code == 401
        assert client.post("/posts", json={"title": "Notes"}).status_code == 422
        assert client.post("/posts", content=b"\xff").json() == {
            "error": "expected a JSON object with the strings title, body"
        }
        assert client.get("/posts/9").status_code == 404
    assert names_in(broker.bootstrap, TOPIC) == ["user.signup", "user.login", "user.signup_failed", "user.login_failed"]


def test_the_blog_works_without_a_broker_and_its_events_arrive_when_there_is_one(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    broker.stop()
    with blog(broker.bootstrap, tmp_path) as client:
        assert client.get("/metrics").is_success  # it has started
        for _ in range(20):
            assert client.get("/posts").elapsed.total_seconds() < 1
        assert 'skylog_events_buffered{application="blog",topic="blog_log"} 20.0' in client.get("/metrics").text
        with broker:
            delivered = 'skylog_events_delivered_total{application="blog",topic="blog_log"} 20.0'
            until(lambda: delivered in client.get("/metrics").text, "the events", seconds=30)
            assert names_in(broker.bootstrap, TOPIC) == ["page.view"] * 20
