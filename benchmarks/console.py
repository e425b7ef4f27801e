"""The cost of the console for a broker, and the time to show pages of a large topic and of thousands of topics.

Compares the produce throughput of one broker while its overview is open in a browser and while its console is stopped,
alternately. The browser is a process that requests the page every three seconds, as the page's script does. Then
compares pages of messages at random offsets of a large topic with those of a small one. At last it loads the list of
2,000 topics, as a browser does: the first page, sorted by a column, and filtered.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import frames, load
from benchmarks.channel import create_topic
from benchmarks.limit import IN_FLIGHT, Run, Size, measure, sizes
from benchmarks.report import Check, Column, Options, Report, Table, median
from benchmarks.servers import GENERATOR_CORE, Server, broker, cpu_seconds, pin

COST_BAR = 0.97
LOOK_BAR = 1.3
REFRESH_S = 3.0
PATIENCE_S = 30.0
BIG, SMALL = "big", "small"
RETENTION = ("log.retention.bytes=1000000000", "log.segment.bytes=250000000", "log.retention.check.interval.ms=1000")
"""A run writes up to 1 GB/s: without frequent checks it fills the disk."""
PAIRS_PER_ROUND = 2
LIST_BAR_MS = 300.0
TOPICS = 2000
TOPICS_AT_ONCE = 100
CREATE_PATIENCE_S = 300.0
LISTS = {
    "first page": "/topics",
    "sorted by size": "/topics?sort=size",
    "filtered": "/topics?q=TOPIC-0000",
    "sorted by retention": "/topics?sort=retention",
}

VISITOR = f"""
import httpx, sys, time
while True:
    httpx.get(sys.argv[1], headers={{"accept": "text/html"}}, timeout=30).raise_for_status()
    time.sleep({REFRESH_S})
"""


def run(options: Options) -> Report:
    pin(os.getpid(), GENERATOR_CORE)
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-console-", dir=options.work_dir))
    report = Report("console", "what the console costs, and how it looks into large topics")
    try:
        _cost(report, work_dir, replace(options, seconds=3 if options.quick else 6))
        _looks(report, work_dir, options)
        _lists(report, work_dir, options)
    finally:
        shutil.rmtree(work_dir)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return report


# -- what an open page costs


def _cost(report: Report, work_dir: Path, options: Options) -> None:
    rows = [_cost_row(work_dir, size, options) for size in sizes()[:3]]
    report.checks += [
        Check(f"{row['size']}: produce with a page open over none", row["ratio"], COST_BAR) for row in rows
    ]
    columns = (
        Column("size", "batch"),
        Column("without", "console stopped, requests/s", "{:,.0f}"),
        Column("with", "page open, requests/s", "{:,.0f}"),
        Column("ratio", "ratio", "{:.3f}"),
        Column("cpu_ratio", "broker's CPU per request, ratio", "{:.3f}"),
    )
    report.tables.append(Table("produce throughput; medians of pairs of runs", columns, rows))


def _cost_row(work_dir: Path, size: Size, options: Options) -> dict[str, Any]:
    """Measure one broker while its console and the visitor are stopped and continued alternately (SIGSTOP, SIGCONT)."""
    data_dir = work_dir / "data"
    frame = frames.produce_request("bench", size.batch)
    taken: dict[bool, list[Run]] = {False: [], True: []}
    try:
        settings = [option for setting in RETENTION for option in ("--set", setting)]
        with broker(data_dir, "--console", "--console-port", "0", *settings) as server:
            create_topic(server.address, "bench")
            with _visitor(server) as visitor:
                beside = [visitor, *_children(server.pid)]
                for number in range(PAIRS_PER_ROUND * options.rounds):
                    for is_open in (False, True) if number % 2 else (True, False):
                        _signal(beside, signal.SIGCONT if is_open else signal.SIGSTOP)
                        run = measure(server, [[frame.data] * 64], frames.produce_error_at("bench"), options)
                        taken[is_open].append(run)
                _signal(beside, signal.SIGCONT)
    finally:
        shutil.rmtree(data_dir)
    pairs = list(zip(taken[True], taken[False], strict=True))
    return {
        "size": size.label,
        "without": median([run.requests_per_second for run in taken[False]]),
        "with": median([run.requests_per_second for run in taken[True]]),
        "ratio": median([with_page.requests_per_second / none.requests_per_second for with_page, none in pairs]),
        "cpu_ratio": median([with_page.cpu_us / none.cpu_us for with_page, none in pairs]),
    }


@contextmanager
def _visitor(server: Server) -> Iterator[int]:
    """Start a process that keeps the overview open. Yield its process id."""
    url = console_url(server)
    httpx.get(url, timeout=PATIENCE_S).raise_for_status()
    visitor = subprocess.Popen([sys.executable, "-c", VISITOR, url])
    try:
        yield visitor.pid
        if visitor.poll() is not None:
            raise RuntimeError("the visitor has left: a page could not be loaded")
    finally:
        visitor.kill()
        visitor.wait()


def _children(pid: int) -> list[int]:
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(number) for numbers in lists for number in numbers.split()]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def console_url(server: Server) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        server.log.seek(0)
        if match := re.search(r"console at (http://\S+)", server.log.read()):
            return match[1]
        time.sleep(0.05)
    raise RuntimeError("the broker named no console")


# -- looking into a large topic


def _looks(report: Report, work_dir: Path, options: Options) -> None:
    big_bytes = 500_000_000 if options.quick else 10_000_000_000
    count = 10 if options.quick else 40
    batch, messages = frames.batch_of_size(1_000_000)
    with broker(work_dir / "looks", "--console", "--console-port", "0") as server:
        for topic, size_bytes in ((BIG, big_bytes), (SMALL, 3 * len(batch))):
            create_topic(server.address, topic)
            _fill(server, topic, batch, size_bytes // len(batch))
        ends = {BIG: big_bytes // len(batch) * messages, SMALL: 3 * messages}
        with httpx.Client(base_url=console_url(server), timeout=PATIENCE_S) as client:
            taken = _look_around(client, ends, count)
    rows: list[dict[str, Any]] = [
        {"topic": topic, "bytes": len(batch) * ends[topic] / messages, "p50_ms": median(times) * 1000}
        for topic, times in taken.items()
    ]
    columns = (Column("topic", "topic"), Column("bytes", "bytes", "{:,.0f}"), Column("p50_ms", "page, ms", "{:.1f}"))
    report.tables.append(Table("a page of 50 messages at a random offset; medians", columns, rows))
    ratio = median(taken[BIG]) / median(taken[SMALL])
    report.checks.append(Check("a page of the large topic over one of the small", ratio, LOOK_BAR, at_most=True))


def _fill(server: Server, topic: str, batch: bytes, requests: int) -> None:
    frame = frames.produce_request(topic, batch)
    load.run(
        server.address,
        [[frame.data] * 4],
        in_flight=min(IN_FLIGHT, requests),
        error_at=frames.produce_error_at(topic),
        seconds=600,
        warm_up_seconds=0,
        max_requests=requests,
    )


def _look_around(client: httpx.Client, ends: dict[str, int], count: int) -> dict[str, list[float]]:
    """Return the seconds that each page took. The topics alternate."""
    taken: dict[str, list[float]] = {topic: [] for topic in ends}
    for number in range(count + 3):
        for topic, end in ends.items():
            offset = random.randrange(end - 50)
            began = time.perf_counter()
            answer = client.get(f"/topics/{topic}/messages?partition=0&offset={offset}&limit=50&format=json")
            took = time.perf_counter() - began
            found = [message["offset"] for message in answer.raise_for_status().json()["messages"]]
            if sorted(found) != list(range(offset, offset + 50)):
                raise RuntimeError(f"asked for {offset} of {topic}, got {found[:3]}")
            if number >= 3:  # the first ones warm up
                taken[topic].append(took)
    return taken


# -- a list of many topics


def _lists(report: Report, work_dir: Path, options: Options) -> None:
    with broker(work_dir / "lists", "--console", "--console-port", "0") as server:
        _create_topics(server, TOPICS)
        with httpx.Client(base_url=console_url(server), timeout=PATIENCE_S) as client:
            _wait_for_snapshot(client)
            rows = [_list_row(server, client, *page, 5 if options.quick else 20) for page in LISTS.items()]
    columns = (
        Column("page", "page"),
        Column("p50_ms", "median, ms", "{:.0f}"),
        Column("max_ms", "slowest, ms", "{:.0f}"),
        Column("cpu_ms", "CPU of broker and console, ms", "{:.0f}"),
    )
    report.tables.append(Table(f"a page of {TOPICS:,} topics", columns, rows))
    report.checks += [
        Check(f"{row['page']} of {TOPICS:,} topics, ms", row["p50_ms"], LIST_BAR_MS, at_most=True) for row in rows
    ]


def _create_topics(server: Server, count: int) -> None:
    host, port = server.address
    client = AdminClient({"bootstrap.servers": f"{host}:{port}"})
    for start in range(0, count, TOPICS_AT_ONCE):
        numbers = range(start, min(start + TOPICS_AT_ONCE, count))
        new = [NewTopic(f"topic-{number:05d}", 1) for number in numbers]
        created = client.create_topics(new, request_timeout=CREATE_PATIENCE_S)
        for future in created.values():
            future.result(CREATE_PATIENCE_S + 1)


def _wait_for_snapshot(client: httpx.Client) -> None:
    """Wait until the console knows all topics. The first page also reads the settings of the topics on it."""
    deadline = time.monotonic() + CREATE_PATIENCE_S
    while client.get("/.json").raise_for_status().json()["figures"]["topics"] < TOPICS:
        if time.monotonic() > deadline:
            raise RuntimeError("the console has not seen all topics")
        time.sleep(0.5)


def _cpu_ms(server: Server) -> float:
    return sum(map(cpu_seconds, [server.pid, *_children(server.pid)])) * 1000


def _list_row(server: Server, client: httpx.Client, label: str, path: str, count: int) -> dict[str, Any]:
    times = []
    before_ms = 0.0
    for number in range(count + 1):
        began = time.perf_counter()
        answer = client.get(path, headers={"accept": "text/html"}).raise_for_status()
        took = time.perf_counter() - began
        if "topic-00001" not in answer.text:
            raise RuntimeError(f"{path} lacks its topics")
        if number:  # the first one warms up
            times.append(took * 1000)
        else:
            before_ms = _cpu_ms(server)
    cpu_ms = (_cpu_ms(server) - before_ms) / count  # includes the snapshots that are taken meanwhile
    return {"page": label, "p50_ms": median(times), "max_ms": max(times), "cpu_ms": cpu_ms}
