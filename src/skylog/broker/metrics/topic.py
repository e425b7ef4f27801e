"""The broker's metrics through its own log: every few seconds one message per value in `_skylog_metrics`.

Runs beside a broker, which knows nothing of it. A message has the metric's name as its key and, as its value, a flat
JSON object with node_id, time_ms, name, labels and value. Of a histogram only `_count` and `_sum` are published: the
mean of any stretch of time follows from two messages, and the buckets would be most of the topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import orjson

from skylog.broker.metrics.collect import stream
from skylog.metric import Metric
from skylog.records import Record, build_batch
from skylog.records.compression import Codec

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

logger = logging.getLogger(__name__)

METRICS_TOPIC: Final = "_skylog_metrics"
INTERVAL_S: Final = 10.0
TOPIC_CONFIGS: Final = {
    "retention.ms": str(7 * 86_400_000),
    "retention.bytes": str(1 << 30),  # a broker with many partitions has much to tell, and must not fill its disk
    "segment.bytes": str(64 << 20),
}
_BATCH_RECORDS: Final = 1000
_STOP_GRACE_S: Final = 5.0


class MetricsTopic:
    """Publishes one broker's metrics. Lives on the broker's event loop.

        publisher = MetricsTopic(broker)
        publisher.start()        # after the broker
        await publisher.stop()   # before the broker

    A round that fails is logged, counted in `failures`, and made up for by the next.
    """

    def __init__(self, broker: Broker, interval_s: float = INTERVAL_S) -> None:
        self._broker = broker
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None
        self.failures = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                await asyncio.wait_for(self._task, _STOP_GRACE_S)

    async def _run(self) -> None:
        while True:
            try:
                await self.publish()
            except Exception:
                self.failures += 1
                logger.exception("publishing to %s failed and is tried again", METRICS_TOPIC)
            await asyncio.sleep(self._interval_s)

    async def publish(self) -> None:
        """Append the values of this moment, and wait as the topic's flush policy wants. Raises KafkaError."""
        broker = self._broker
        if not broker.partitions.of_topic(METRICS_TOPIC):
            await broker.topics.create(METRICS_TOPIC, broker.topics.plan(METRICS_TOPIC, 1), TOPIC_CONFIGS)
        now_ms = broker.clock.now_ms()
        records: list[Record] = []
        async for metric in stream(broker):
            records += _records(metric, broker.identity.node_id, now_ms)
            if len(records) >= _BATCH_RECORDS:
                await self._append(records, now_ms)
                records = []
        if records:
            await self._append(records, now_ms)

    async def _append(self, records: list[Record], now_ms: int) -> None:
        built = await asyncio.get_running_loop().run_in_executor(self._broker.executor, _build, records)
        partition = self._broker.partitions.get(METRICS_TOPIC, 0)
        stored = self._broker.flusher.append(partition, memoryview(built), now_ms)
        if stored is not None:
            await stored


def _build(records: list[Record]) -> bytearray:
    return build_batch(records, codec=Codec.ZSTD)


def _records(metric: Metric, node_id: int, now_ms: int) -> Iterator[Record]:
    for sample in metric.samples:
        if sample.suffix == "_bucket":
            continue
        name = metric.name + sample.suffix
        value = {
            "node_id": node_id,
            "time_ms": now_ms,
            "name": name,
            "labels": sample.labels,
            "value": sample.value,
        }
        yield Record(value=orjson.dumps(value), key=name.encode(), timestamp=now_ms)
