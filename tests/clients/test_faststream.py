"""FastStream applications run unchanged, over aiokafka and over confluent-kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skylog.testing import consume

faststream = pytest.importorskip("faststream")


def kafka_broker(bootstrap: str) -> Any:
    from faststream.kafka import KafkaBroker

    return KafkaBroker(bootstrap)


def confluent_broker(bootstrap: str) -> Any:
    from faststream.confluent import KafkaBroker

    return KafkaBroker(bootstrap)


@pytest.mark.parametrize("make", [kafka_broker, confluent_broker])
def test_an_application_reads_one_topic_and_publishes_to_another(
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
