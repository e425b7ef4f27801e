"""`/pipelines` as HTML and as JSON, with what jobs have published to their topic."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pytest

from skylog.client import Admin, Producer
from skylog.job_status import JOBS_TOPIC, JobState, JobStatus
from skylog.testing import BrokerProcess, wait_until
from tests.console.conftest import RunningConsole, running_console

HOUR_MS: Final = 3_600_000
HOSTILE: Final = "<script>alert(1)</script>"
_numbers = itertools.count()


class Jobs:
    """Publishes the status of jobs, and reads the console's page."""

    def __init__(self, console: RunningConsole) -> None:
        self.console = console
        self._producer = Producer(console.broker.bootstrap)
        self.now_ms = time.time_ns() // 1_000_000

    def report(self, name: str, state: JobState = JobState.RUNNING, *, age_s: float = 0, **fields: Any) -> None:
        now_ms = time.time_ns() // 1_000_000
        known = {
            "kind": "land",
            "host": "worker-1",
            "pid": 4711,
            "started_at_ms": now_ms - HOUR_MS,
            "topics": ("events",),
        }
        status = JobStatus(name=name, state=state, reported_at_ms=now_ms - int(age_s * 1000), **{**known, **fields})
        self.write(status.encode(), name)

    def write(self, value: bytes, key: str) -> None:
        self._producer.send(JOBS_TOPIC, value, key)
        assert self._producer.flush(20) == 0

    def page(self, query: str = "") -> Any:
        return self.console.json(f"/pipelines?{query}")

    def find(self, name: str, query: str = "") -> Any:
        return next((job for job in self.page(query)["jobs"] if job["name"] == name), None)

    def wait_for(self, name: str, **fields: object) -> Any:
        def found() -> Any:
            job = self.find(name)
            return job if job and all(job[key] == value for key, value in fields.items()) else None

        return wait_until(found, f"the status of {name}")


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    with BrokerProcess() as broker, running_console(broker) as console:
        document: Any = console.json("/pipelines")
        assert (document["exists"], document["jobs"]) == (False, [])
        assert "No job has reported yet" in console.get("/pipelines").text
        Admin(broker.bootstrap).create_topic(JOBS_TOPIC, 1, configs={"cleanup.policy": "compact"})
        yield Jobs(console)


@pytest.fixture
def name() -> str:
    """Of a job that no other test has."""
    return f"land: events -> /warehouse-{next(_numbers)}"


def test_a_job_is_shown_with_its_last_batch(jobs: Jobs, name: str) -> None:
    jobs.report(name, batch=3, batch_at_ms=jobs.now_ms, records=1200, seconds=2.5, lag=34, records_total=5000)
    job = jobs.wait_for(name, state="running")
    assert (job["batch"], job["records"], job["seconds"], job["lag"]) == (3, 1200, 2.5, 34)
    assert (job["kind"], job["host"], job["pid"], job["topics"]) == ("land", "worker-1", 4711, ["events"])
    html = jobs.console.get("/pipelines").text
    assert "1,200 records in 2.5 s" in html


def test_a_capture_is_shown_with_its_lag_its_slot_and_its_last_error(jobs: Jobs, name: str) -> None:
    measured: dict[str, Any] = {"lag_bytes": 3 << 20, "lag_s": 7.25, "slot_bytes": 5 << 20, "records_total": 4321}
    jobs.report(name, kind="capture", topics=("shop.public.users",), last_error="connection refused", **measured)
    job = jobs.wait_for(name, state="running")
    assert {key: job[key] for key in measured} == measured
    html = jobs.console.get("/pipelines").text
    for text in ("slot keeps 5.2 MB", "3.1 MB", "7.2 s", "connection refused", "capture writes"):
        assert text in html, text


def test_the_rate_is_that_of_the_last_minute(jobs: Jobs, name: str) -> None:
    for age_s, total in ((600, 0), (120, 1000), (60, 4000), (0, 10_000)):
        jobs.report(name, age_s=age_s, started_at_ms=jobs.now_ms - HOUR_MS, records_total=total, lag=total)
    job = jobs.wait_for(name, records_total=10_000)
    assert 80 < job["records_per_s"] <= 101  # 6,000 in a minute
    page = jobs.page()
    assert [value for _, value in page["lag_history"][name]] == [0, 1000, 4000, 10_000]
    assert [round(value) for _, value in page["rate_history"][name]] == [2, 50, 100]


def test_a_job_without_a_report_for_half_a_minute_is_silent(jobs: Jobs, name: str) -> None:
    jobs.report(name, age_s=31)
    job = jobs.wait_for(name, state="silent")
    assert f"{name} has not reported for 3" in job["problem"]
    assert job["records_per_s"] is None
    html = jobs.console.get("/pipelines").text
    assert '<span class="tag bad">silent</span>' in html


def test_a_job_that_waits_and_reports_is_not_silent(jobs: Jobs, name: str) -> None:
    jobs.report(name, JobState.WAITING, age_s=15)
    assert jobs.wait_for(name)["state"] == "waiting"


def test_a_job_that_failed_shows_its_error_also_after_it_was_started_again(jobs: Jobs, name: str) -> None:
    jobs.report(name, JobState.FAILED, last_error=f"no disk {HOSTILE}")
    job = jobs.wait_for(name, state="failed")
    assert job["problem"] == f"{name} failed: no disk {HOSTILE}"
    html = jobs.console.get("/pipelines").text
    assert "no disk &lt;script&gt;" in html
    assert HOSTILE not in html
    jobs.report(name)
    job = jobs.wait_for(name, state="running")
    assert (job["last_error"], job["problem"]) == (f"no disk {HOSTILE}", None)
    assert "Earlier error" in jobs.console.get("/pipelines").text


def test_a_job_that_tries_again_is_a_problem_until_it_succeeds(jobs: Jobs, name: str) -> None:
    jobs.report(name, JobState.RETRYING, kind="capture", last_error="connection refused")
    job = jobs.wait_for(name, state="retrying")
    assert job["problem"] == f"{name} fails and tries again: connection refused"
    html = jobs.console.get("/pipelines").text
    assert '<span class="tag bad">retrying</span>' in html
    jobs.report(name, JobState.RUNNING, kind="capture")
    job = jobs.wait_for(name, state="running")
    assert (job["last_error"], job["problem"]) == ("connection refused", None)


def test_a_job_that_stopped_more_than_a_day_ago_is_hidden_until_all_are_requested(jobs: Jobs, name: str) -> None:
    jobs.report(name, JobState.STOPPED, age_s=25 * 3600)
    jobs.report(f"{name}-yesterday", JobState.STOPPED, age_s=23 * 3600)
    assert jobs.wait_for(f"{name}-yesterday")["state"] == "stopped"
    assert jobs.find(name) is None
    assert jobs.page()["hidden"] >= 1
    assert "Show all" in jobs.console.get("/pipelines").text
    assert jobs.find(name, "all=1")["state"] == "stopped"


def test_a_message_that_is_not_a_status_is_ignored(jobs: Jobs, name: str) -> None:
    jobs.write(b"\xff no status", "somebody")
    jobs.report(name)
    assert jobs.wait_for(name)


def test_one_odd_message_does_not_break_the_page(jobs: Jobs, name: str) -> None:
    odd = {"name": "odd", "state": "running", "started_at_ms": 1, "reported_at_ms": 10**18}
    jobs.write(orjson.dumps(odd), "odd")
    edge = {"name": "edge", "state": "running", "started_at_ms": 0, "reported_at_ms": 253402300799000, "lag": 2**63 - 1}
    jobs.write(orjson.dumps(edge), "edge")
    jobs.report(name)
    jobs.wait_for(name)
    response = jobs.console.get("/pipelines?all=1", headers={"accept": "text/html"})
    assert response.status_code == 200
    assert jobs.find("odd", "all=1") is None
    assert jobs.find("edge", "all=1")["lag"] == 2**63 - 1
    jobs.write(orjson.dumps({**edge, "state": "stopped"}), "edge")


def test_names_are_shown_as_text(jobs: Jobs) -> None:
    jobs.report(HOSTILE, topics=(HOSTILE,), host=HOSTILE, kind=HOSTILE)
    jobs.wait_for(HOSTILE)
    html = jobs.console.get("/pipelines").text
    assert "&lt;script&gt;alert(1)" in html
    assert HOSTILE not in html


def test_the_overview_names_the_jobs_with_problems(jobs: Jobs, name: str) -> None:
    jobs.report(name, JobState.FAILED, last_error="no disk")
    jobs.wait_for(name, state="failed")
    verdicts: Any = jobs.console.json("/")["verdicts"]
    [stuck] = [verdict for verdict in verdicts if verdict["name"] == "Stuck"]
    assert (stuck["state"], stuck["link"]) == ("bad", "/pipelines")
