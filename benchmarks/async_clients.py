"""AsyncProducer and AsyncConsumer against aiokafka's: both do the same work in turn, in one process, on one event loop.

The producers await each message before the next one, or send all of them with `asyncio.gather`. Both have the same
guarantees: acks=all and idempotence. aiokafka's defaults (acks=1, not idempotent) are shown beside them. By default its
batches have 16 kB, so it is also measured with batches as large as librdkafka's. skylog must not be slower than the
faster of the two. The order of the rows changes with each round, and ratios are those of one round: other load on the
machine affects both alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.channel import create_topic
from benchmarks.report import Check, Column, Options, Report, Table, median
from benchmarks.servers import broker

TOPIC = "async"
VALUE = b"v" * 200
BAR = 1.0
PEER = "aiokafka"
LARGE_BATCHES = f"{PEER}, batches of 1 MB"
OURS = "skylog"

Send = Callable[[bytes], Awaitable[object]]


@contextlib.asynccontextmanager
async def skylog_sender(bootstrap: str) -> AsyncIterator[Send]:
    from skylog import AsyncProducer

    async with AsyncProducer(bootstrap) as producer:
        yield lambda value: producer.send(TOPIC, value)


@contextlib.asynccontextmanager
async def _aiokafka_sender(bootstrap: str, **options: Any) -> AsyncIterator[Send]:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **options) as producer:
        yield lambda value: producer.send_and_wait(TOPIC, value)


def aiokafka_sender(bootstrap: str) -> contextlib.AbstractAsyncContextManager[Send]:
    return _aiokafka_sender(bootstrap, acks="all", enable_idempotence=True)


def aiokafka_large_batches(bootstrap: str) -> contextlib.AbstractAsyncContextManager[Send]:
    return _aiokafka_sender(bootstrap, acks="all", enable_idempotence=True, max_batch_size=1_000_000)


def aiokafka_defaults(bootstrap: str) -> contextlib.AbstractAsyncContextManager[Send]:
    return _aiokafka_sender(bootstrap)


SENDERS = {
    PEER: aiokafka_sender,
    LARGE_BATCHES: aiokafka_large_batches,
    f"{PEER}, its defaults": aiokafka_defaults,
    OURS: skylog_sender,
}


async def one_by_one(send: Send, count: int) -> None:
    for _ in range(count):
        await send(VALUE)


async def gathered(send: Send, count: int) -> None:
    await asyncio.gather(*[send(VALUE) for _ in range(count)])


async def measure_senders(
    bootstrap: str, pattern: Callable[[Send, int], Awaitable[None]], count: int, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds per message of each round."""
    taken: dict[str, list[float]] = {name: [] for name in SENDERS}
    async with contextlib.AsyncExitStack() as stack:
        senders = {name: await stack.enter_async_context(make(bootstrap)) for name, make in SENDERS.items()}
        for number in range(rounds + 1):
            for name in _rotated(list(senders), number):
                began = time.perf_counter()
                await pattern(senders[name], count)
                if number:  # the first round warms up
                    taken[name].append((time.perf_counter() - began) / count)
    return taken


async def skylog_reader(bootstrap: str, count: int) -> float:
    from skylog import AsyncConsumer

    seen = 0
    async with AsyncConsumer(TOPIC, f"skylog-{time.monotonic_ns()}", bootstrap) as consumer:
        began = 0.0
        async for message in consumer:
            began = began or time.perf_counter()
            seen += bool(message.value)
            if seen == count:
                return (time.perf_counter() - began) / count
    raise AssertionError("the consumer ended")


async def aiokafka_reader(bootstrap: str, count: int) -> float:
    from aiokafka import AIOKafkaConsumer

    seen = 0
    group = f"aiokafka-{time.monotonic_ns()}"
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    async with consumer:
        began = 0.0
        async for message in consumer:
            began = began or time.perf_counter()
            seen += bool(message.value)
            if seen == count:
                return (time.perf_counter() - began) / count
    raise AssertionError("the consumer ended")


READERS = {PEER: aiokafka_reader, OURS: skylog_reader}


async def measure_readers(bootstrap: str, count: int, rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in READERS}
    for number in range(rounds):
        for name in _rotated(list(READERS), number):
            taken[name].append(await READERS[name](bootstrap, count))
    return taken


def run(options: Options) -> Report:
    rounds = max(options.rounds, 3)
    # aiokafka raises KafkaTimeoutError for 20,000 gathered messages.
    singles, many, read = (300, 3_000, 3_000) if options.quick else (2_000, 5_000, 20_000)
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-async-", dir=options.work_dir))
    report = Report("async_clients", "skylog's asyncio clients against aiokafka, messages of 200 bytes")
    try:
        with broker(work_dir / "data", core=None) as server:
            create_topic(server.address, TOPIC, 1)
            for title, pattern, count in (("one by one", one_by_one, singles), ("gathered", gathered, many)):
                taken = asyncio.run(measure_senders(server.bootstrap, pattern, count, rounds))
                _add(report, f"send, awaited {title}", taken)
            _add(report, "consume as a group", asyncio.run(measure_readers(server.bootstrap, read, rounds)))
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    report.notes += [
        f"“× {PEER}” compares the rates of one round with those of the first row; medians of {rounds} rounds.",
        "The bar is about the faster of the rows with the same guarantees.",
        "A consumer's time begins with its first message: joining the group is not part of it.",
    ]
    return report


_COLUMNS = (
    Column("what", "client"),
    Column("rate", "messages/s", "{:,.0f}"),
    Column("ratio", f"× {PEER}", "{:.2f}"),
)


def _add(report: Report, title: str, taken: dict[str, list[float]]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "what": name,
            "rate": 1 / median(rounds),
            "ratio": median([before / each for each, before in zip(rounds, taken[PEER], strict=True)]),
        }
        for name, rounds in taken.items()
    ]
    report.tables.append(Table(title, _COLUMNS, rows))
    fastest = [
        min(times) for times in zip(*(taken[name] for name in (PEER, LARGE_BATCHES) if name in taken), strict=True)
    ]
    ratio = median([before / each for each, before in zip(taken[OURS], fastest, strict=True)])
    report.checks.append(Check(f"{title}: {OURS} × {PEER}", ratio, BAR))


def _rotated(names: list[str], number: int) -> list[str]:
    start = number % len(names)
    return names[start:] + names[:start]
