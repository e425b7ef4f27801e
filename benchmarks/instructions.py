"""How many instructions the start and a request cost the broker: `python -m benchmarks instructions [--against DIR]`.

The broker runs under valgrind's callgrind, which counts instructions. Unlike a time, the count does not depend on what
else the machine does. What an idle broker does per second is subtracted. The kernel's work is not included. It takes
two minutes for each of the two checkouts.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import frames, load
from benchmarks.channel import create_topic
from benchmarks.report import Check, Column, Options, Report, Table

WARM_UP = 200
REQUESTS = 1500
LOADS = ((1, 1, 1), (1, 8, 5), (50, 1, 5), (1000, 1, 5))
"""Messages in a request, connections, and requests in flight on each."""
FETCHES = (("one batch of 50", 0), ("1 MiB of batches of 50", 1 << 20))
"""What a fetch asks for, and its limit; 0 for one batch."""
FETCHED_BATCHES = 300
IDLE_SECONDS = 10.0
BAR = 1.03
START = "start, with a new topic"
_FETCHED = frames.record_batch(50)
_TOTALS = re.compile(rb"^totals: (\d+)", re.MULTILINE)


def run(options: Options) -> Report:
    report = Report("instructions", "instructions of the broker for its start and for a request")
    if shutil.which("callgrind_control") is None:
        report.notes.append("valgrind is not installed: nothing is measured (apt-get install valgrind)")
        return report
    for checkout in (Path(__file__).parents[1], options.against):
        if checkout is not None:  # otherwise the start of a new checkout is counted with its compilation
            compileall.compile_dir(checkout / "src", quiet=2)
    after = _measure(options, Path(__file__).parents[1])
    before = _measure(options, options.against) if options.against is not None else {}
    rows: list[dict[str, Any]] = []
    for what, count in after.items():
        row: dict[str, Any] = {"what": what, "after": count}
        if before:
            row |= {"before": before[what], "ratio": count / before[what]}
            report.checks.append(Check(what, row["ratio"], BAR, at_most=True))
        rows.append(row)
    columns = [Column("what", "what"), Column("after", "instructions", "{:,.0f}")]
    if before:
        columns += [Column("before", "before", "{:,.0f}"), Column("ratio", "after/before", "{:.3f}")]
    report.tables.append(Table("", columns, rows))
    return report


def _measure(options: Options, checkout: Path) -> dict[str, float]:
    """Return the instructions of a broker by what it does."""
    requests = REQUESTS // 5 if options.quick else REQUESTS
    with _Counted.broker(options, checkout) as broker:
        found: dict[str, float] = {START: broker.counted()}
        time.sleep(IDLE_SECONDS)
        idle = broker.counted() / IDLE_SECONDS
        for messages, connections, in_flight in LOADS:
            what = f"produce {messages} × 200 B, {connections} conn. × {in_flight}"
            broker.serve(messages, connections, in_flight, WARM_UP)
            broker.counted()
            began = time.monotonic()
            done = broker.serve(messages, connections, in_flight, requests)
            taken = time.monotonic() - began
            found[what] = (broker.counted() - idle * taken) / done
        broker.prepare_fetches()
        for name, max_bytes in FETCHES:
            broker.fetch(max_bytes, WARM_UP)
            broker.counted()
            began = time.monotonic()
            done = broker.fetch(max_bytes, requests)
            taken = time.monotonic() - began
            found[f"fetch {name}"] = (broker.counted() - idle * taken) / done
    return found


class _Counted:
    """A broker under callgrind."""

    def __init__(self, process: subprocess.Popen[bytes], work_dir: Path) -> None:
        assert process.stdout is not None
        self._process = process
        self._work_dir = work_dir
        self._address = ("127.0.0.1", int(process.stdout.readline().rpartition(b":")[2]))
        create_topic(self._address, "t")

    @classmethod
    @contextmanager
    def broker(cls, options: Options, checkout: Path) -> Iterator[_Counted]:
        work_dir = Path(tempfile.mkdtemp(prefix="skylog-instructions-", dir=options.work_dir))
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={work_dir / 'counts'}"]
        serve = [sys.executable, "-P", "-m", "skylog", "serve", "--no-console", "--port", "0"]
        process = subprocess.Popen(
            [*valgrind, *serve, "--data-dir", str(work_dir / "data")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONHASHSEED": "0"},
        )
        try:
            yield cls(process, work_dir)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            shutil.rmtree(work_dir)

    def counted(self) -> int:
        """Return the instructions since the last call, or since the start."""
        before = set(self._work_dir.glob("counts.*"))
        subprocess.run(["callgrind_control", "--dump", str(self._process.pid)], check=True, capture_output=True)
        (written,) = set(self._work_dir.glob("counts.*")) - before
        found = _TOTALS.search(written.read_bytes())
        if found is None:
            raise RuntimeError("valgrind has counted nothing")
        return int(found.group(1))

    def serve(self, messages: int, connections: int, in_flight: int, requests: int) -> int:
        """Send produce requests, and return how many were answered."""
        done = load.run(
            self._address,
            [[frames.produce_request("t", frames.record_batch(messages)).data] * 8] * connections,
            in_flight=in_flight,
            error_at=frames.produce_error_at("t"),
            seconds=600,
            warm_up_seconds=0,
            max_requests=requests,
        )
        return done.total_requests

    def prepare_fetches(self) -> None:
        """Fill the topic that `fetch` reads."""
        create_topic(self._address, "f")
        request = frames.produce_request("f", _FETCHED).data
        load.run(
            self._address,
            [[request]],
            in_flight=1,
            error_at=frames.produce_error_at("f"),
            seconds=600,
            warm_up_seconds=0,
            max_requests=FETCHED_BATCHES,
        )

    def fetch(self, max_bytes: int, requests: int) -> int:
        """Send fetch requests, one at a time, and return how many were answered."""
        asked = [
            frames.fetch_request("f", 50 * number, partition_max_bytes=max_bytes or len(_FETCHED)).data
            for number in range(FETCHED_BATCHES // 3)
        ]
        done = load.run(
            self._address,
            [asked],
            in_flight=1,
            error_at=frames.fetch_error_at("f"),
            seconds=600,
            warm_up_seconds=0,
            max_requests=requests,
            long_answers=True,
        )
        return done.total_requests
