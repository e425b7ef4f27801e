"""How long one client can delay all others: a small acknowledged produce beside each attack on the event loop."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import frames
from benchmarks.attacks import ATTACKS, Attack
from benchmarks.channel import Channel, create_topic, produce
from benchmarks.report import Check, Column, Options, Plot, Report, Table
from benchmarks.stage import Stage

CALM = "calm"
BAR_MS = 100.0
SETTLE_S = 1.2  # the broker does not count pauses of its first second
PRODUCE_EVERY_S = 0.002
_FIGURES = {
    "answer_mb": "answer of {:.1f} MB",
    "bomb_bytes": "{} bytes each",
    "create_s": "created in {:.1f} s",
    "delete_s": "deleted in {:.1f} s",
    "cpu_percent": "{:.1f} % of a core",
    "memory_mb": "{:.0f} MB",
    "requests": "{:,} requests",
    "logins_per_s": "{:,.0f} logins a second refused",
    "log_lines": "{:,} lines in the log",
}


def run(options: Options) -> Report:
    rows = []
    for name, attack in ATTACKS.items():
        print(name, file=sys.stderr, flush=True)
        rows.append(_attack(name, attack, options))
    return _report(rows)


def _attack(name: str, attack: Attack, options: Options) -> dict[str, Any]:
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-stalls-", dir=options.work_dir))
    try:
        with Stage(work_dir / "data", options.quick) as stage:
            strike = attack(stage)
            stage.restart()
            create_topic(stage.server.address, CALM)
            with Neighbour(stage.server.address) as neighbour:
                time.sleep(SETTLE_S)
                began = time.perf_counter()
                figures = strike()
                took_s = time.perf_counter() - began
                time.sleep(SETTLE_S)
            loop_ms = stage.longest_pause_ms()
    finally:
        shutil.rmtree(work_dir)
    told = ", ".join(form.format(figures[key]) for key, form in _FIGURES.items() if key in figures)
    return {
        "attack": name,
        "took_s": took_s,
        "produce_ms": neighbour.longest_ms,
        "loop_ms": loop_ms,
        "told": told,
        **figures,
    }


class Neighbour:
    """A producer in a separate process that sends small messages one at a time and measures the longest wait."""

    def __init__(self, address: tuple[str, int]) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_produce, args=(address, theirs), daemon=True)
        self.longest_ms = 0.0

    def __enter__(self) -> Neighbour:
        self._process.start()
        self._ours.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.send(None)
        self.longest_ms = self._ours.recv() if self._ours.poll(60) else float("inf")
        self._process.join(5)
        self._process.kill()


def _produce(address: tuple[str, int], parent: Connection) -> None:
    batch = frames.record_batch(1, 50)
    longest_s = 0.0
    with Channel(address) as channel:
        channel.sock.settimeout(600)
        produce(channel, CALM, batch)
        parent.send(None)
        while not parent.poll():
            began = time.perf_counter()
            produce(channel, CALM, batch)
            longest_s = max(longest_s, time.perf_counter() - began)
            time.sleep(PRODUCE_EVERY_S)
    parent.send(longest_s * 1000)


def _report(rows: list[dict[str, Any]]) -> Report:
    report = Report("stalls", "the longest wait of a small acknowledged produce beside each attack")
    columns = (
        Column("attack", "attack"),
        Column("took_s", "took s", "{:.1f}"),
        Column("produce_ms", "longest produce ms", "{:,.0f}"),
        Column("loop_ms", "the loop's own measure ms", "{:,.0f}"),
        Column("told", "also"),
    )
    report.tables.append(Table("", columns, rows))
    report.checks += [Check(f"{row['attack']}, ms", row["produce_ms"], BAR_MS, at_most=True) for row in rows]
    labels = [row["attack"][:24] for row in rows]
    heights = {"longest produce": [max(row["produce_ms"], 0.1) for row in rows]}
    report.plots.append(Plot("longest wait", "ms", labels, heights, [BAR_MS], logarithmic=True))
    report.notes.append("Each attack has a broker of its own, started anew after the preparation.")
    return report
