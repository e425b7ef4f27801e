"""The health check: which problems it reports, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.broker import standalone_broker
from skylog.broker.metrics import Health, HealthReport, health
from skylog.testing import DiskFaults, ManualClock
from tests.broker.conftest import create_topic
from tests.broker.process import BrokerThread
from tests.broker.raw import RawClient, batch_of


class Job:
    failures = 0


@pytest.fixture
def disk() -> DiskFaults:
    return DiskFaults()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def thread(tmp_path: Path, disk: DiskFaults, clock: ManualClock) -> Iterator[BrokerThread]:
    thread = BrokerThread(tmp_path / "unused")
    thread.broker = standalone_broker(tmp_path / "data", clock=clock, open_file=disk.open_file)
    with thread:
        yield thread


def report(thread: BrokerThread, of: Health | None = None) -> HealthReport:
    found: HealthReport = thread.run((of or Health(thread.broker)).report())
    return found


def test_a_healthy_broker_reports_its_identity(thread: BrokerThread, tmp_path: Path) -> None:
    found = report(thread)
    assert (found.healthy, found.problems) == (True, [])
    assert found.to_document()["data_dir"] == str(tmp_path / "data")
    assert (found.node_id, found.cluster_id) == (1, thread.broker.identity.cluster_id)


def test_a_log_that_takes_no_appends_is_named(thread: BrokerThread, disk: DiskFaults) -> None:
    with RawClient(thread.port) as client:
        create_topic(client, "t", 8, {"flush_messages": "1"})
        disk.failing.add("sync")
        for partition in range(8):
            client.produce("t", batch_of(b"x"), partition=partition)
    disk.failing.clear()
    found = report(thread)
    assert not found.healthy
    assert "t-0 takes no appends until a restart" in found.problems[0]
    assert found.problems[5] == "and 3 more logs"


def test_a_failure_is_a_problem_for_five_minutes(thread: BrokerThread, clock: ManualClock) -> None:
    job = Job()
    thread.broker.background["gardening"] = job
    watched = Health(thread.broker)
    assert report(thread, watched).healthy
    job.failures = 2
    (problem,) = report(thread, watched).problems
    assert "gardening failed in the last 5 minutes, 2 times" in problem
    clock.advance_ms(299_000)
    assert not report(thread, watched).healthy
    clock.advance_ms(2_000)
    assert report(thread, watched).healthy
    job.failures = 3
    assert not report(thread, watched).healthy


def test_a_disk_that_is_nearly_full_is_a_problem(thread: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MIN_FREE_SHARE", 1.1)  # no disk of this machine can be filled for a test
    (problem,) = report(thread).problems
    assert "nearly full" in problem
