"""The cost of compaction: its speed compared with a plain copy, and the latency of producers while it runs.

Keys are drawn at random, with a tenth as many keys as messages. Values have 200 bytes. The first part calls
`cleaner.clean` directly, on a log in the page cache; the copy writes the same files elsewhere and syncs them. In the
second part a broker holds a large log, which becomes compacted only after the idle latency is measured.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import frames
from benchmarks.channel import Channel, create_topic, produce
from benchmarks.report import Check, Column, Options, Plot, Report, Table, median
from benchmarks.servers import Server, broker
from skylog.clock import SystemClock
from skylog.model import TopicPartition
from skylog.records import BatchHeader, Codec, Record, build_batch
from skylog.records.retain import open_block, recompress
from skylog.storage import Log, LogConfig, LogDir
from skylog.storage.clean_job import FOLDER, CleanJob
from skylog.storage.cleaner import clean
from skylog.storage.segment import segment_path

MB = 10**6
MESSAGES_PER_BATCH = 200
MESSAGE_BYTES = 225
MESSAGES_PER_KEY = 10
LOG_BYTES = 64 * MB
SEGMENT_BYTES = 16 << 20
MAX_KEYS = 10_000_000

RATE = 1000
LARGE_TOPIC = "large"
LARGE_SEGMENT_BYTES = 64 << 20
PACED_TOPIC = "paced"
ALLOWED = 3
LOOK_EVERY = 50
"""Requests between two checks whether the compaction has ended."""
SETTLING_SECONDS = 1
IDLE_SECONDS = 5
START_SECONDS = 60
END_SECONDS = 600
SETTINGS = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.flush.scheduler.interval.ms": 200,
    "log.segment.bytes": LARGE_SEGMENT_BYTES,
}
_COMPACTED = re.compile(rf"{LARGE_TOPIC}\S*: compacted up to offset \d+, (\d+) MB to (\d+) MB")


def run(options: Options) -> Report:
    report = Report("compaction", "the speed of compaction; produce latency while it runs")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-compaction-", dir=options.work_dir))
    try:
        speeds = [_speed(work_dir / codec.name, codec, options) for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD)]
        rows = _latency_rows(work_dir / "broker", options)
    finally:
        shutil.rmtree(work_dir)
    _report_speeds(report, speeds)
    _report_latencies(report, rows)
    return report


def _keyed_batches(messages: int, codec: Codec) -> Iterator[bytes]:
    """Return batches with `messages` in total. One batch is built and copied with other keys, which is much faster."""
    keys = messages // MESSAGES_PER_KEY
    placeholder = b"\xff" * len(_key(0))
    draw = random.Random(1)
    now_ms = SystemClock().now_ms()
    values = [draw.randbytes(50).hex().encode() + b"paid,sent," * 10 for _ in range(MESSAGES_PER_BATCH)]
    model = build_batch([Record(value, placeholder, now_ms) for value in values])
    header = BatchHeader.read(model)
    parts = open_block(model, header).split(placeholder)
    pieces = [piece for part in parts for piece in (part, b"")]
    for _ in range(messages // MESSAGES_PER_BATCH):
        pieces[1:-1:2] = [_key(draw.randrange(keys)) for _ in range(MESSAGES_PER_BATCH)]
        yield recompress(header, b"".join(pieces), codec)


def _key(number: int) -> bytes:
    return b"order-%010d" % number


# -- speed


def _speed(path: Path, codec: Codec, options: Options) -> dict[str, Any]:
    """Run compaction and copy alternately. Nothing is swapped in, so that every round does the same work."""
    log_dir = LogDir(path, SystemClock())
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES)
    log = log_dir.open_log(TopicPartition("speed", 0), config)
    job = _fill(log, LOG_BYTES // MESSAGE_BYTES, codec)
    compactions, copies = [], []
    for _ in range(options.rounds):
        started = time.perf_counter()
        result = clean(job)
        compactions.append(time.perf_counter() - started)
        copies.append(_copy(job, path / "copy"))
    log_dir.close()
    size_mb = sum(source.size_bytes for source in job.sources) / MB
    records = result.kept_records + result.dropped_records
    shutil.rmtree(path)
    return {
        "codec": codec.name.lower(),
        "size_mb": size_mb,
        "written_mb": result.written_bytes / MB,
        "compaction_mb_s": size_mb / median(compactions),
        "copy_mb_s": size_mb / median(copies),
        "ratio": median(copies) / median(compactions),
        "messages_s": records / median(compactions),
    }


def _fill(log: Log, messages: int, codec: Codec) -> CleanJob:
    for batch in _keyed_batches(messages, codec):
        log.append_as_leader(memoryview(bytearray(batch)), 0, 0)
    now_ms = SystemClock().now_ms()
    log.roll(now_ms)
    task = log.begin_flush()
    task.run()
    log.end_flush(task)
    log.advance_high_watermark(log.log_end_offset)
    job = log.plan_cleaning(now_ms, MAX_KEYS)
    if job is None:
        raise RuntimeError("the log that was to be compacted has nothing to compact")
    return job


def _copy(job: CleanJob, target: Path) -> float:
    target.mkdir()
    started = time.perf_counter()
    for source in job.sources:
        original = segment_path(job.directory, source.base_offset)
        shutil.copyfile(original, target / original.name)
        with open(target / original.name, "rb") as copied:
            os.fsync(copied.fileno())
    taken = time.perf_counter() - started
    shutil.rmtree(target)
    return taken


def _report_speeds(report: Report, rows: list[dict[str, Any]]) -> None:
    columns = [
        Column("codec", "codec"),
        Column("size_mb", "log MB", "{:.0f}"),
        Column("written_mb", "left MB", "{:.1f}"),
        Column("compaction_mb_s", "compaction MB/s", "{:.1f}"),
        Column("copy_mb_s", "copy + fsync MB/s", "{:.0f}"),
        Column("ratio", "compaction / copy", "{:.3f}"),
        Column("messages_s", "messages/s", "{:,.0f}"),
    ]
    report.tables.append(
        Table(f"compaction, {100 // MESSAGES_PER_KEY} % distinct keys, driven directly", columns, rows)
    )
    series = {"compaction": [row["compaction_mb_s"] for row in rows], "copy": [row["copy_mb_s"] for row in rows]}
    report.plots.append(Plot("compaction", "MB/s of log files", [r["codec"] for r in rows], series, logarithmic=True))
    report.notes.append("MB/s are those of the files: lz4 and zstd have fewer bytes for as many messages.")


# -- latency


def _latency_rows(data_dir: Path, options: Options) -> list[dict[str, Any]]:
    """Measure the latency while idle, while the large log is compacted, and while idle again."""
    closed_bytes = 256 * MB if options.quick else 1000 * MB
    messages = (closed_bytes + LARGE_SEGMENT_BYTES) // MESSAGE_BYTES  # the active segment is left alone
    cleaning = data_dir / f"{LARGE_TOPIC}-0" / FOLDER
    with broker(data_dir, *(f"--set={key}={value}" for key, value in SETTINGS.items()), core=None) as server:
        create_topic(server.address, LARGE_TOPIC)
        create_topic(server.address, PACED_TOPIC)
        with Channel(server.address) as channel:
            for batch in _keyed_batches(messages, Codec.NONE):
                produce(channel, LARGE_TOPIC, batch)
            before = idle_latencies(channel)
            if cleaning.exists():
                raise RuntimeError("the log was compacted before it was asked for")
            _make_compacted(server)
            _wait_until(cleaning.exists, "the compaction did not begin")
            started = time.perf_counter()
            during = latencies(channel, lambda elapsed: _is_compacted(server, elapsed))
            seconds = time.perf_counter() - started
            after = idle_latencies(channel)
        read_mb, left_mb = (int(text) for text in _outcomes(server)[0])
    rows = [_row("idle before", before), _row("compacting", during), _row("idle after", after)]
    rows[1] |= {"seconds": seconds, "read_mb": read_mb, "left_mb": left_mb, "mb_s": read_mb / seconds}
    return rows


def idle_latencies(channel: Channel) -> list[float]:
    """Return the latencies of an idle broker, after the disk has finished writing."""
    os.sync()
    latencies(channel, lambda elapsed: elapsed > SETTLING_SECONDS)
    return latencies(channel, lambda elapsed: elapsed > IDLE_SECONDS)


def latencies(channel: Channel, is_over: Callable[[float], bool]) -> list[float]:
    """Return the latencies of requests that are due at `RATE` a second, one at a time.

    A request that is due while another one is unanswered counts from its due time. If this process wakes up late, the
    schedule moves instead.
    """
    request = frames.produce_request(PACED_TOPIC, frames.record_batch(1)).data
    error_at = frames.produce_error_at(PACED_TOPIC)
    clock = time.perf_counter
    times: list[float] = []
    started = due = clock()
    while len(times) % LOOK_EVERY or not is_over(clock() - started):
        wait = due - clock()
        if wait > 0:
            time.sleep(wait)
            due = clock()
        answer = channel.ask(request)
        times.append(clock() - due)
        if answer[error_at] or answer[error_at + 1]:
            raise RuntimeError(f"the broker answered with an error: {answer[:120]!r}")
        due += 1 / RATE
    return times


def _make_compacted(server: Server) -> None:
    skylog = str(Path(sys.executable).with_name("skylog"))
    change = ["topics", "alter", LARGE_TOPIC, "--config", "cleanup.policy=compact", "--bootstrap", server.bootstrap]
    subprocess.run([skylog, *change], check=True, capture_output=True)


def _wait_until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(complaint)
        time.sleep(0.01)


def _is_compacted(server: Server, elapsed: float) -> bool:
    if elapsed > END_SECONDS:
        raise RuntimeError(f"the compaction has not ended within {END_SECONDS} s")
    return bool(_outcomes(server))


def _outcomes(server: Server) -> list[tuple[str, str]]:
    """Return what the broker logged about compactions. Uses `pread`, because the broker shares the file's position."""
    found: list[tuple[str, str]] = _COMPACTED.findall(os.pread(server.log.fileno(), 1 << 20, 0).decode())
    return found


def _row(state: str, times: list[float]) -> dict[str, Any]:
    points = statistics.quantiles(times, n=1000)
    named = {"p50_ms": points[499], "p99_ms": points[989], "p999_ms": points[998], "max_ms": max(times)}
    return {"state": state, "requests": len(times)} | {name: value * 1e3 for name, value in named.items()}


def _report_latencies(report: Report, rows: list[dict[str, Any]]) -> None:
    points = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
    columns = [
        Column("state", "broker"),
        Column("requests", "requests", "{:,d}"),
        *(Column(key, key.replace("_", " "), "{:.2f}") for key in points),
        Column("seconds", "compaction s", "{:.1f}"),
        Column("read_mb", "log MiB", "{:d}"),
        Column("left_mb", "left MiB", "{:d}"),
        Column("mb_s", "MiB/s", "{:.1f}"),
    ]
    report.tables.append(Table(f"produce requests of one message, {RATE:,}/s, one at a time", columns, rows))
    before, during, after = rows
    idle_ms = min(before["p99_ms"], after["p99_ms"])
    ratio = during["p99_ms"] / idle_ms
    report.checks.append(Check("produce p99 while compacting / the better idle one", ratio, ALLOWED, at_most=True))
    series = {key.removesuffix("_ms"): [row[key] for row in rows] for key in points[:2]}
    bars = [ALLOWED * idle_ms]
    report.plots.append(Plot("produce latency", "ms", [row["state"] for row in rows], series, bars))
