"""Jobs whose processes are killed between batches leave exact results.

Only with `make proof`: each start of a command is a JVM. Elsewhere stores and the table log are killed at every step.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skylog import Admin
from skylog.testing import BrokerProcess, consume, wait_until
from tests.pipeline.jobs.logged_events import Logged, send
from tests.proof import in_proof
from tests.spark.conftest import COMMAND_MASTER, Commands

EVENTS = 6000
KILLS = 4
BATCH = EVENTS // 12
PATIENCE_S = 200


class Case(NamedTuple):
    """A job, its options, the events that it reads, its exact result, and what is found of it."""

    job: str
    options: Sequence[str]
    event: Callable[[int], Logged]
    expected: Callable[[], Any]
    found: Callable[[str, str, Path], Any]


def records(bootstrap: str, topic: str, _: Path) -> list[tuple[str, str]]:
    """All records of the topic, so that one that comes twice is found."""
    if topic not in [each.name for each in Admin(bootstrap).list_topics()]:
        return []
    messages = consume(bootstrap, topic)
    return sorted(((message.key or b"").decode(), message.json().get("post", "")) for message in messages)


def rows(_: str, table: str, directory: Path) -> list[tuple[str, int]]:
    if not (directory / "security.db").exists():
        return []
    with closing(sqlite3.connect(directory / "security.db")) as connection, suppress(sqlite3.OperationalError):
        return connection.execute(f'SELECT window_start, failures FROM "{table}" ORDER BY 1').fetchall()
    return []


def follow_or_post(number: int) -> Logged:
    """Ten readers follow one author, who then posts."""
    if number < 10:
        return Logged(0, "user.follow", f"reader-{number}", {"author": "ada"})
    return Logged(number, "post.create", "ada", {"id": number, "title": "A post"})


def deliveries() -> list[tuple[str, str]]:
    return sorted((f"reader-{reader}", str(post)) for reader in range(10) for post in range(10, EVENTS))


def comment(number: int) -> Logged:
    """Every third has a known phrase. Users write one each."""
    body = "free money" if number % 3 == 0 else "hello"
    return Logged(number, "comment.create", f"user-{number}", {"id": number, "body": body})


def failure(number: int) -> Logged:
    """A failed login a second, from one address."""
    return Logged(number, "user.login_failed", None, {"name": f"user-{number}", "address": "10.0.0.1"})


def windows() -> list[tuple[str, int]]:
    starts = (datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(minutes=each) for each in range(EVENTS // 60))
    return [(start.isoformat(), 60) for start in starts]


TOPIC = ("--into", "TARGET")
CASES = (
    Case("feed", TOPIC, follow_or_post, deliveries, records),
    Case("spam", TOPIC, comment, lambda: sorted((str(n), "") for n in range(0, EVENTS, 3)), records),
    Case("security", ("--table", "TARGET", "--window", "1m", "--late", "2h"), failure, windows, rows),
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.job)
@in_proof
def test_the_command_is_killed_between_batches_and_its_result_is_exact(
    case: Case, commands: Commands, skylog_broker: BrokerProcess, event_topic: str, tmp_path: Path
) -> None:
    bootstrap, target = skylog_broker.bootstrap, f"{case.job}_{event_topic.replace('-', '_')}"
    send(bootstrap, event_topic, map(case.event, range(EVENTS)))
    options = [each.replace("TARGET", target) for each in case.options]
    arguments = ["pipeline", "run", case.job, event_topic, *options, "--bootstrap", bootstrap]
    arguments += ["--max-offsets", str(BATCH), "--once"]

    def found() -> Any:
        return case.found(bootstrap, target, tmp_path)

    for kill in range(KILLS):
        before = found()
        with (tmp_path / f"log-{kill}").open("wb") as log:
            command = [sys.executable, "-m", "skylog", *arguments, *COMMAND_MASTER]
            driver = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: found() != before or driver.poll() is not None, "a batch", PATIENCE_S)  # noqa: B023
            assert driver.poll() is None, (tmp_path / f"log-{kill}").read_text()[-3000:]
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # driver, JVM and workers
            driver.wait()
    assert found() != case.expected()
    commands.run(*arguments, directory=tmp_path)
    assert found() == case.expected()
