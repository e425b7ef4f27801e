"""This checkout's broker beside another's: `python -m benchmarks compare --against DIR`.

Both brokers run at the same time, on one core, and the generator drives them in many short turns. The best turn of each
counts: other work on the machine only ever slows a turn down. Ratios are after to before: below 1 is better for times,
above 1 for rates.
"""

from __future__ import annotations

import compileall
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import frames, load
from benchmarks.channel import Channel, create_topic, produce, read_log
from benchmarks.report import Column, Options, Report, Table
from benchmarks.servers import GENERATOR_CORE, SERVER_CORE, Server, pin

TURN_SECONDS = 0.08
TURNS = 40
STARTS = 9
BATCHES = (1, 50, 1000)
LOADS = ((1, 1), (1, 5), (8, 5))
"""Connections, and requests in flight on each."""
FETCH_BYTES = 1 << 20
LOG_BYTES = 16 << 20
TURN_BYTES = 16 << 20  # more, and the kernel makes writers wait for the disk

Pair = tuple[Server, Server]


def run(options: Options) -> Report:
    if options.against is None:
        raise SystemExit("compare needs --against DIR: the other checkout, for example a git worktree")
    sources = (options.against / "src", Path(__file__).parents[1] / "src")
    turns = 10 if options.quick else TURNS
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-compare-", dir=options.work_dir))
    rows: list[dict[str, Any]] = []
    for source in sources:  # otherwise the start of a new checkout is measured with its compilation
        compileall.compile_dir(source, quiet=2)
    pin(os.getpid(), GENERATOR_CORE)
    try:
        before, after = (_broker(source, work_dir / name) for source, name in zip(sources, "ab", strict=True))
        with before, after:
            for messages in BATCHES:
                rows += [_produce_row((before, after), messages, *how, turns) for how in LOADS]
            for messages in BATCHES[1:]:
                rows += _fetch_rows((before, after), messages, turns)
        rows += _start_rows(sources, work_dir, 2 if options.quick else STARTS)
    finally:
        shutil.rmtree(work_dir)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return _report(rows)


def _broker(source: Path, data_dir: Path) -> Server:
    command = [sys.executable, "-P", "-m", "skylog", "serve", "--no-console", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(source)
    return Server([*command, "--data-dir", str(data_dir)], core=SERVER_CORE, environment=environment)


def _take_turns(what: str, pair: Pair, turns: int, drive: Callable[[Server], load.Load]) -> dict[str, Any]:
    """Drive both servers alternately. The order changes with each turn."""
    rates: tuple[list[float], list[float]] = ([], [])
    costs: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns):
        for side in (0, 1) if turn % 2 else (1, 0):
            used = pair[side].run_time_ns()
            taken = drive(pair[side])
            if taken.total_requests:
                costs[side].append((pair[side].run_time_ns() - used) / taken.total_requests / 1e3)
                rates[side].append(taken.requests_per_second)
    cpu_before, cpu_after = (min(each) for each in costs)
    rate_before, rate_after = (max(each) for each in rates)
    return _row(what, "requests/s", rate_before, rate_after) | {
        "cpu_before": cpu_before,
        "cpu_after": cpu_after,
        "cpu_ratio": cpu_after / cpu_before,
    }


def _row(what: str, unit: str, before: float, after: float) -> dict[str, Any]:
    return {"what": what, "unit": unit, "before": before, "after": after, "ratio": after / before}


def _produce_row(pair: Pair, messages: int, connections: int, in_flight: int, turns: int) -> dict[str, Any]:
    topic = f"produce-{messages}-{connections}-{in_flight}"
    for server in pair:
        create_topic(server.address, topic)
    batch = frames.record_batch(messages)
    requests = [[frames.produce_request(topic, batch).data] * 64] * connections

    def drive(server: Server) -> load.Load:
        return load.run(
            server.address,
            requests,
            in_flight=in_flight,
            error_at=frames.produce_error_at(topic),
            seconds=TURN_SECONDS,
            warm_up_seconds=0.005,
            max_requests=TURN_BYTES // len(batch),
        )

    return _take_turns(f"produce {messages} × 200 B, {connections} conn. × {in_flight}", pair, turns, drive)


def _fetch_rows(pair: Pair, messages: int, turns: int) -> list[dict[str, Any]]:
    topic = f"fetch-{messages}"
    batch = frames.record_batch(messages)
    for server in pair:
        create_topic(server.address, topic)
        load.run(
            server.address,
            [[frames.produce_request(topic, batch).data] * 64],
            in_flight=5,
            error_at=frames.produce_error_at(topic),
            seconds=60,
            warm_up_seconds=0,
            max_requests=LOG_BYTES // len(batch),
        )
    rows = []
    for name, max_bytes in (("1 MiB", FETCH_BYTES), ("one batch", len(batch))):
        found = [read_log(server.address, topic, max_bytes, 500).offsets for server in pair]
        offsets = [offset for offset in found[0] if offset in set(found[1])]  # one log may be a few batches longer
        asked = [frames.fetch_request(topic, offset, partition_max_bytes=max_bytes).data for offset in offsets]

        def drive(server: Server, asked: list[bytes] = asked) -> load.Load:
            return load.run(
                server.address,
                [asked],
                in_flight=5,
                error_at=frames.fetch_error_at(topic),
                seconds=TURN_SECONDS,
                warm_up_seconds=0.005,
                long_answers=True,
            )

        rows.append(_take_turns(f"fetch {name} of batches of {messages}", pair, turns, drive))
    return rows


def _start_rows(sources: tuple[Path, Path], work_dir: Path, starts: int) -> list[dict[str, Any]]:
    seconds: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    megabytes: tuple[list[float], list[float]] = ([], [])
    for number in range(starts):
        for side, source in enumerate(sources):
            with _broker(source, work_dir / f"start-{side}-{number}") as server:
                create_topic(server.address, "t")
                with Channel(server.address) as channel:
                    produce(channel, "t", frames.record_batch(1))
                seconds[side].append(server.age())
                cpu[side].append(server.run_time_ns() / 1e9)
                megabytes[side].append(server.rss_bytes() / 1e6)
    return [
        _row("start to first produce", "s", *map(min, seconds)),
        _row("CPU time until then", "s", *map(min, cpu)),
        _row("memory after it", "MB", *map(min, megabytes)),
    ]


def _report(rows: list[dict[str, Any]]) -> Report:
    report = Report("compare", "this broker (after) beside another checkout's (before)")
    columns = (
        Column("what", "what"),
        Column("before", "before", "{:,.4g}"),
        Column("after", "after", "{:,.4g}"),
        Column("unit", "unit"),
        Column("ratio", "after/before", "{:.3f}"),
        Column("cpu_before", "CPU µs before", "{:.1f}"),
        Column("cpu_after", "after", "{:.1f}"),
        Column("cpu_ratio", "after/before", "{:.3f}"),
    )
    report.tables.append(Table("", columns, rows))
    report.notes.append("Both brokers share a core and take turns; the best turn of each counts. CPU is per request.")
    return report
