"""Draws the pictures of docs/jobs from real runs: `python docs/job_pictures.py [feed spam security monitoring]`.

Starts a broker and Spark, sends ten minutes of events with their times, runs the jobs over them, and plots the results.
Requires the dev extra.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from pyspark.sql import SparkSession

from skylog import Admin, Producer
from skylog.pipeline import Topic
from skylog.pipeline.jobs.feed import feed_job
from skylog.pipeline.jobs.monitoring import AlertRule, monitoring_job
from skylog.pipeline.jobs.monitoring.job import ALERTS, METRICS_TOPIC
from skylog.pipeline.jobs.security import security_job
from skylog.pipeline.jobs.spam import spam_job
from skylog.spark.session import start_session
from skylog.testing import BrokerProcess, consume

IMAGES: Final = Path(__file__).parent / "images"
NOON_MS: Final = 1_772_366_400_000  # 2026-03-01T12:00Z
SECONDS: Final = 600
BLUE, RED, GREY = "#3366cc", "#cc3333", "#999999"

Event = tuple[float, str, str | None, dict[str, Any]]


class Stage:
    """A broker, Spark, and a directory for state."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self.spark, self.bootstrap, self.directory = spark, bootstrap, directory
        self.random = random.Random(1)

    def send(self, topic: str, events: Iterable[Event]) -> None:
        Admin(self.bootstrap).create_topic(topic, 2, configs={"retention.ms": "-1"})
        with Producer(self.bootstrap) as producer, producer.batch():
            for at_s, event, user, attributes in events:
                actor = None if user is None else {"id": user, "created_at": 1.0}
                value = {"event": event, "user": actor, "attributes": attributes}
                producer.send(topic, value, user, timestamp_ms=NOON_MS + int(at_s * 1000))

    def run(self, job: Any) -> None:
        job.run(self.spark, self.bootstrap, once=True, state=self.directory / job.name)

    def read(self, topic: str) -> list[Any]:
        return list(consume(self.bootstrap, topic))


def minute(timestamp_ms: int) -> float:
    return (timestamp_ms - NOON_MS) / 60_000


def save(name: str, title: str, y_label: str) -> None:
    plt.title(title, loc="left")
    plt.xlabel("minutes")
    plt.ylabel(y_label)
    plt.xlim(0, SECONDS / 60)
    plt.legend(loc="upper left", frameon=False)
    plt.tight_layout()
    plt.savefig(IMAGES / f"jobs-{name}.png", dpi=110)
    plt.close()


def feed(stage: Stage) -> None:
    drawn = stage.random
    follows = [(drawn.uniform(0, SECONDS), "user.follow", f"r{n}", {"author": f"a{n % 4}"}) for n in range(80)]
    posts = [
        (drawn.uniform(0, SECONDS), "post.create", f"a{n % 4}", {"id": f"p{n}", "title": "A post"}) for n in range(60)
    ]
    stage.send("feed_events", [*follows, *posts])
    stage.run(feed_job(["feed_events"], Topic("feed")))
    delivered = sorted(minute(message.timestamp_ms) for message in stage.read("feed"))
    written, began = sorted(at_s / 60 for at_s, *_ in posts), sorted(at_s / 60 for at_s, *_ in follows)
    for times, label, colour in ((delivered, "deliveries", BLUE), (began, "follows", GREY), (written, "posts", RED)):
        plt.step(times, range(1, len(times) + 1), where="post", label=label, color=colour)
    save("feed", f"{len(posts)} posts, {len(delivered)} deliveries", "so far")


def spam(stage: Stage) -> None:
    drawn = stage.random
    bodies = ("Well said.", "Thank you!", "Free money here", "http://a.example http://b.example http://c.example")
    comments = [(n * 4.0, f"u{n % 40}", f"{drawn.choices(bodies, (10, 10, 2, 1))[0]} {n}") for n in range(SECONDS // 4)]
    comments += [(300 + n * 3.0, "bot", f"Look at this {n}") for n in range(20)]
    stage.send(
        "spam_events",
        [
            (at_s, "comment.create", user, {"id": f"c{n}", "body": body})
            for n, (at_s, user, body) in enumerate(comments)
        ],
    )
    stage.run(spam_job(["spam_events"], Topic("flagged")))
    plt.scatter([at_s / 60 for at_s, *_ in comments], ["all"] * len(comments), marker="|", color=GREY, label="comments")
    found = [(minute(m.timestamp_ms), reason) for m in stage.read("flagged") for reason in m.json()["reasons"]]
    plt.scatter([at for at, _ in found], [reason for _, reason in found], marker="|", color=RED, label="flagged")
    plt.ylim(-0.5, len({reason for _, reason in found}) + 1.5)
    save("spam", f"{len(comments)} comments", "")


def security(stage: Stage) -> None:
    drawn = stage.random
    logins = [
        (
            drawn.uniform(0, SECONDS),
            "user.login_failed" if n % 10 == 0 else "user.login",
            f"u{n % 30}",
            f"10.0.0.{n % 30}",
        )
        for n in range(300)
    ]
    logins += [(240 + n * 3.0, "user.login_failed", f"u{n}", "203.0.113.7") for n in range(40)]
    drawn.shuffle(logins)  # they may arrive in any order
    stage.send("logins", [(at_s, event, None, {"name": name, "address": ip}) for at_s, event, name, ip in logins])
    database = stage.directory / "security.db"
    stage.run(security_job(["logins"], f"sqlite:///{database}"))
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT who, window_start, window_end, failures FROM suspicious_logins").fetchall()
    failed = Counter(int(at_s // 60) for at_s, event, *_ in logins if event == "user.login_failed")
    plt.bar([each + 0.5 for each in failed], list(failed.values()), 0.9, color=GREY, label="failed logins, by minute")
    for number, (who, start, end, count) in enumerate(sorted(rows, key=lambda row: row[1])):
        times = [minute(int(datetime.fromisoformat(each).timestamp() * 1000)) for each in (start, end)]
        height = -2 - 2 * number  # one below the other, because they overlap
        plt.plot(times, [height, height], color=RED, linewidth=3, label=f"flagged: {who}" if number == 0 else None)
        plt.text(times[1], height, f" {count}", color=RED, va="center", fontsize=8)
    save("security", "Windows of five minutes with ten failures or more", "failed logins")


def monitoring(stage: Stage) -> None:
    labels = {"consumergroup": "billing", "topic": "clicks", "partition": "0"}
    lag = [(n * 10, max(0, 1500 - abs(n - 30) * 60) * 10) for n in range(SECONDS // 10)]
    Admin(stage.bootstrap).create_topic(METRICS_TOPIC, 1, configs={"retention.ms": "-1"})
    with Producer(stage.bootstrap) as producer, producer.batch():
        for at_s, value in lag:
            at_ms = NOON_MS + at_s * 1000
            metric = {
                "node_id": 1,
                "time_ms": at_ms,
                "name": "kafka_consumergroup_lag",
                "labels": labels,
                "value": value,
            }
            producer.send(METRICS_TOPIC, json.dumps(metric).encode(), timestamp_ms=at_ms)
    rule = AlertRule("consumer falls behind", "kafka_consumergroup_lag", above=8000, for_s=30)
    stage.run(monitoring_job(rules=[rule]))
    raised, cleared = (message.json() for message in stage.read(ALERTS.name))
    plt.plot([at_s / 60 for at_s, _ in lag], [value for _, value in lag], color=BLUE, label="lag of group billing")
    plt.axhline(8000, color=GREY, linestyle="--", label="limit")
    plt.axvspan(minute(raised["at_ms"]), minute(cleared["at_ms"]), color=RED, alpha=0.15, label="alert is raised")
    save("monitoring", raised["condition"], "messages")


PICTURES: Final[dict[str, Callable[[Stage], None]]] = {
    "feed": feed,
    "spam": spam,
    "security": security,
    "monitoring": monitoring,
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, BrokerProcess() as broker:
        stage = Stage(start_session("pictures"), broker.bootstrap, Path(directory))
        for name in sys.argv[1:] or PICTURES:
            plt.figure(figsize=(7, 3.2))
            PICTURES[name](stage)
        stage.spark.stop()
