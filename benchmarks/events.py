"""The cost of event tracking for an application: one `fire`, and a page of the example blog that fires five events.

The blog runs in two processes, with and without events. One client requests the same page from both, a few requests at
a time, so that other load on the machine affects both alike.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.channel import create_topic
from benchmarks.report import Check, Column, Options, Report, Table, median
from benchmarks.servers import Server, broker

FIRE_BAR_US = 20.0
REQUEST_BAR = 1.05
BLOCK = 100
EVENTS_PER_REQUEST = 5


def run(options: Options) -> Report:
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-events-", dir=options.work_dir))
    report = Report("events", "what event tracking costs an application")
    try:
        with broker(work_dir / "data", core=None) as server:
            create_topic(server.address, "events", 1)
            create_topic(server.address, "blog_log", 1)
            _measure_fire(server, report, 2_000 if options.quick else 20_000)
            _measure_requests(server, report, work_dir, 10 if options.quick else 100)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    return report


class User:
    id = 7
    created_at = 1_700_000_000.0


def _measure_fire(server: Server, report: Report, requests: int) -> None:
    from skylog import Producer
    from skylog.events import EventLog

    with Producer(server.bootstrap) as producer:
        events = EventLog(producer, "events", "benchmark")
        fire_us, request_us = [], []
        for number in range(requests):
            started = time.perf_counter_ns()
            with events.request():
                for _ in range(EVENTS_PER_REQUEST):
                    before = time.perf_counter_ns()
                    events.fire("post.show", User, id=number, title="A title as long as titles are", path="/posts/7")
                    fire_us.append((time.perf_counter_ns() - before) / 1000)
            request_us.append((time.perf_counter_ns() - started) / 1000)
        events.close()
        delivered = producer.delivered_count
    assert delivered == requests * EVENTS_PER_REQUEST
    rows: list[dict[str, Any]] = [
        {"what": "fire", **_spread(fire_us)},
        {"what": f"a request with {EVENTS_PER_REQUEST} events", **_spread(request_us)},
    ]
    columns = [Column("what", "what")] + [Column(key, key, "{:.1f}") for key in ("median", "p90", "p99")]
    report.tables.append(Table("µs in the thread of the request, with a producer that sends meanwhile", columns, rows))
    report.checks.append(Check("fire: µs, median", rows[0]["median"], FIRE_BAR_US, at_most=True))


def _spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"median": cuts[49], "p90": cuts[89], "p99": cuts[98]}


def _measure_requests(server: Server, report: Report, work_dir: Path, rounds: int) -> None:
    blogs = {mode: _start_blog(mode, server, work_dir) for mode in ("without", "with")}
    clients = {mode: _Client(each.address) for mode, each in blogs.items()}
    taken: dict[str, list[float]] = {mode: [] for mode in blogs}
    cpu: dict[str, float] = {}
    try:
        for mode, client in clients.items():
            client.sign_up()
            client.ask(BLOCK)
            cpu[mode] = blogs[mode].cpu_seconds()
        for number in range(rounds):
            for mode in sorted(blogs, reverse=bool(number % 2)):
                taken[mode].append(median(clients[mode].ask(BLOCK)))
        cpu = {mode: (blogs[mode].cpu_seconds() - cpu[mode]) / (rounds * BLOCK) * 1e6 for mode in blogs}
    finally:
        for each in blogs.values():
            each.stop()
    ratio = median([after / before for after, before in zip(taken["with"], taken["without"], strict=True)])
    rows = [
        {"mode": f"{mode} events", "request_us": median(taken[mode]), "cpu_us": cpu[mode], "ratio": share}
        for mode, share in (("without", 1.0), ("with", ratio))
    ]
    columns = (
        Column("mode", "the blog"),
        Column("request_us", "request µs", "{:.0f}"),
        Column("ratio", "×", "{:.3f}"),
        Column("cpu_us", "CPU µs of the server, all threads", "{:.0f}"),
    )
    title = f"a page that fires {EVENTS_PER_REQUEST} events, as its client sees it"
    report.tables.append(Table(title, columns, rows))
    report.checks.append(Check("requests with events: time over without", ratio, REQUEST_BAR, at_most=True))
    report.notes.append(f"{rounds} rounds of {BLOCK} requests each; the median over rounds of the ratio of medians.")


def _start_blog(mode: str, server: Server, work_dir: Path) -> Server:
    os.environ.update(
        BLOG_DATABASE=str(work_dir / f"{mode}.db"),
        SKYLOG_BOOTSTRAP=server.bootstrap,
        SKYLOG_AUDIT_DIR=str(work_dir / "audit"),
    )
    script = Path(__file__).with_name("blog_server.py")
    return Server([sys.executable, str(script), mode], core=None)


class _Client:
    """A browser that stays connected and logged in."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = http.client.HTTPConnection(*address)
        self._headers: dict[str, str] = {}

    def sign_up(self) -> None:
        self._post("/users", {"name": "ada", "password": "secret", "organisation": "analysts"})
        cookie = self._post("/sessions", {"name": "ada", "password": "secret"}).getheader("set-cookie")
        assert cookie is not None
        self._headers = {"Cookie": cookie.partition(";")[0]}
        self._post("/posts", {"title": "A title as long as titles are", "body": "Some text. " * 50})

    def ask(self, count: int) -> list[float]:
        """Request the page `count` times. Return the microseconds of each request."""
        taken = []
        for _ in range(count):
            started = time.perf_counter_ns()
            self._connection.request("GET", "/pages/1", headers=self._headers)
            response = self._connection.getresponse()
            response.read()
            taken.append((time.perf_counter_ns() - started) / 1000)
            assert response.status == 200
        return taken

    def _post(self, path: str, document: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request("POST", path, json.dumps(document), self._headers)
        response = self._connection.getresponse()
        text = response.read()
        assert response.status in (200, 201), text
        return response
