"""Publishes the broker's metrics to the topic `_skylog_metrics` every few seconds, one message per value.

The brokers of a cluster share the topic, and send to the leader of its partition. A broker does not depend on this
module. The key of a message is the metric's name. The value is a flat JSON object with node_id, time_ms, name, labels
and value. Of a histogram only `_count` and `_sum` are published: two messages give the mean over the time between them,
and buckets would make up most of the topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import orjson

from skylog.broker.metrics.collect import stream
from skylog.errors import LEADER_AWAY, ErrorCode, KafkaError
from skylog.metric import Metric
from skylog.model import TopicPartition
from skylog.outage import Outage
from skylog.records import Record, build_batch
from skylog.records.compression import Codec

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

logger = logging.getLogger(__name__)

METRICS_TOPIC: Final = "_skylog_metrics"
INTERVAL_S: Final = 10.0
TOPIC_CONFIGS: Final = {
    "retention.ms": str(7 * 86_400_000),
    "retention.bytes": str(1 << 30),  # a broker with many partitions has many metrics, and must not fill its disk
    "segment.bytes": str(64 << 20),
}
_BATCH_RECORDS: Final = 1000
_STOP_GRACE_S: Final = 5.0
_AWAY: Final = LEADER_AWAY | {
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,  # brokers create the topic at once, and the leader removes its own attempt first
}


class MetricsTopic:
    """Publishes a broker's metrics. Use it on the broker's event loop.

        publisher = MetricsTopic(broker)
        publisher.start()        # after the broker
        await publisher.stop()   # before the broker

    A failure is logged and counted in `failures`. The values of that time are not published later. It is not a failure
    if the topic has no leader for a while, or if it cannot be created or opened yet.
    """

    def __init__(self, broker: Broker, interval_s: float = INTERVAL_S) -> None:
        self._broker = broker
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(broker.clock)
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
                self._outage.ended()
            except Exception as error:
                self._note(error)
            await asyncio.sleep(self._interval_s)

    def _note(self, error: Exception) -> None:
        if not isinstance(error, KafkaError) or error.code not in _AWAY:
            self.failures += 1
            logger.error("publishing to %s failed, retrying", METRICS_TOPIC, exc_info=error)
        elif self._outage.failed():
            self.failures += 1
            logger.warning("cannot publish to %s, retrying: %s", METRICS_TOPIC, error)

    async def publish(self) -> None:
        """Append the current values, and wait until they are committed. Raises SkylogError."""
        broker = self._broker
        if METRICS_TOPIC not in broker.metadata.image.topics:
            await self._create()
        now_ms = broker.clock.now_ms()
        records: list[Record] = []
        async for metric in stream(broker):
            records += _records(metric, broker.identity.node_id, now_ms)
            if len(records) >= _BATCH_RECORDS:
                await self._append(records)
                records = []
        if records:
            await self._append(records)

    async def _create(self) -> None:
        """Create the topic. Another broker may be faster."""
        topics = self._broker.topics
        try:
            await topics.create(METRICS_TOPIC, topics.plan(METRICS_TOPIC, 1), TOPIC_CONFIGS)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def _append(self, records: list[Record]) -> None:
        built = await asyncio.get_running_loop().run_in_executor(self._broker.executor, _build, records)
        await self._broker.leader_client.append(TopicPartition(METRICS_TOPIC, 0), built)


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
