"""Posts reach the followers of their author, each once and in event time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from skylog.pipeline import Topic
from skylog.pipeline.jobs.feed import feed_job
from skylog.testing import BrokerProcess, consume
from tests.pipeline.jobs.logged_events import NOON_MS, Logged, send


def follow(at_s: float, reader: str, author: str, event: str = "user.follow") -> Logged:
    return Logged(at_s, event, reader, {"author": author})


def unfollow(at_s: float, reader: str, author: str) -> Logged:
    return follow(at_s, reader, author, "user.unfollow")


def post(at_s: float, author: str, number: int) -> Logged:
    return Logged(at_s, "post.create", author, {"id": number, "title": f"Post {number}", "body": "…"})


def feeds(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """Every delivery: reader and post, sorted."""
    found: Iterable[Any] = consume(bootstrap, topic)
    return sorted(((message.key or b"").decode(), message.json()["post"]) for message in found)


def test_a_post_reaches_those_who_follow_its_author_at_that_time(
    spark: SparkSession, skylog_broker: BrokerProcess, event_topic: str, tmp_path: Path
) -> None:
    bootstrap, into = skylog_broker.bootstrap, f"{event_topic}-feed"
    job = feed_job([event_topic], Topic(into))

    def run(*events: Logged) -> list[tuple[str, str]]:
        send(bootstrap, event_topic, events)
        job.run(spark, bootstrap, once=True, state=tmp_path / "state")
        return feeds(bootstrap, into)

    first = run(
        post(5, "ada", 1),  # before anyone follows
        follow(10, "bob", "ada"),
        follow(12, "cyd", "ada"),
        follow(13, "bob", "ada"),  # again: still one delivery
        post(20, "ada", 2),
        unfollow(25, "cyd", "ada"),
        post(30, "ada", 3),
        post(30, "eve", 4),  # nobody follows
        Logged(31, "page.view", "bob", {"page": "/"}),
    )
    assert first == [("bob", "2"), ("bob", "3"), ("cyd", "2")]
    second = run(  # the followers are kept from run to run
        post(50, "ada", 7),  # not in the order of time
        follow(22, "cyd", "ada"),  # late: the unfollow at 25 is newer
        post(40, "ada", 5),
        follow(42, "ada", "bob"),
        post(43, "bob", 6),
        unfollow(45, "bob", "ada"),
        follow(46, "cyd", "ada"),
    )
    assert second == sorted([*first, ("bob", "5"), ("ada", "6"), ("cyd", "7")])
    [entry] = [message for message in consume(bootstrap, into) if message.json()["post"] == "6"]
    assert entry.json() == {"post": "6", "author": "bob", "title": "Post 6"}
    assert entry.timestamp_ms == NOON_MS + 43_000
