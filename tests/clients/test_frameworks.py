"""Applications of FastStream, faust and quixstreams run unchanged."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from skylog import Admin, Producer
from skylog.testing import consume
from tests.proof import some

from .peers.installation import NotAvailable, python_packages

faststream = pytest.importorskip("faststream")
APPLICATIONS: Final = Path(__file__).parent / "frameworks"


def kafka_broker(bootstrap: str) -> Any:
    from faststream.kafka import KafkaBroker

    return KafkaBroker(bootstrap)


def confluent_broker(bootstrap: str) -> Any:
    from faststream.confluent import KafkaBroker

    return KafkaBroker(bootstrap)


@pytest.mark.parametrize("make", [kafka_broker, confluent_broker])
def test_a_faststream_application_reads_one_topic_and_publishes_to_another(
    make: Any, skylog_bootstrap: str, skylog_topic: str
) -> None:
    async def run() -> None:
        broker = make(skylog_bootstrap)
        done = asyncio.Event()

        @broker.subscriber(skylog_topic, group_id=skylog_topic, auto_offset_reset="earliest")  # type: ignore[untyped-decorator]
        @broker.publisher(f"{skylog_topic}-doubled")  # type: ignore[untyped-decorator]
        async def double(number: int) -> int:
            return number * 2

        @broker.subscriber(f"{skylog_topic}-doubled", group_id=f"{skylog_topic}-2", auto_offset_reset="earliest")  # type: ignore[untyped-decorator]
        async def collect(number: int) -> None:
            if number == 18:
                done.set()

        async with broker:
            await broker.start()
            for number in range(10):
                await broker.publish(number, skylog_topic, key=b"k")
            await asyncio.wait_for(done.wait(), 60)

    asyncio.run(run())
    found = [message.json() for message in consume(skylog_bootstrap, f"{skylog_topic}-doubled", count=10)]
    assert sorted(found) == [number * 2 for number in range(10)]


def by_user(row: tuple[str, int]) -> str:
    """The order of one user's rows is kept. Users may be in different partitions on the way."""
    return row[0]


@pytest.mark.parametrize("name", some(["quix", "faust"], usual=1))
def test_an_application_keeps_its_state_when_it_is_started_on_another_machine(
    name: str, skylog_bootstrap: str, skylog_topic: str, tmp_path: Path
) -> None:
    """Both keep a table in a changelog topic. The second start has no files of the first."""
    try:
        packages = python_packages(APPLICATIONS / "requirements.txt", "frameworks")
    except NotAvailable as reason:
        pytest.skip(str(reason))
    target = f"{skylog_topic}-{name}"
    Admin(skylog_bootstrap).create_topic(target, partitions=1)
    expected = []
    totals = {"ada": 0, "grace": 0}
    for start in (1, 2):
        with Producer(skylog_bootstrap) as producer:
            for number in range(10):
                user = ("ada", "grace")[number % 2]
                totals[user] += start * number
                expected.append((user, totals[user]))
                producer.send(skylog_topic, {"user": user, "amount": start * number}, key=user)
        script = str(APPLICATIONS / f"{name}_app.py")
        command = [sys.executable, script, skylog_bootstrap, skylog_topic, target, str(tmp_path / str(start)), "10"]
        log = tmp_path / f"{start}.log"
        with log.open("w") as output:
            environment = {**os.environ, "PYTHONPATH": str(packages)}
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            found = consume(skylog_bootstrap, target, count=10 * start, timeout_s=120)
        finally:
            if name == "faust":  # the other one ends by itself
                process.send_signal(signal.SIGINT)
            process.wait(120)
        read = [((each.key or b"").decode(), each.json()["total"]) for each in found]
        assert sorted(read, key=by_user) == sorted(expected, key=by_user), log.read_text()
        assert process.returncode == 0, log.read_text()
