"""A naive Spark source, for comparison: reads rows from confluent-kafka, message by message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


class NaiveSource(DataSource):
    """Reads a whole topic. Its options are kafka.bootstrap.servers and subscribe (one topic)."""

    @classmethod
    def name(cls) -> str:
        return "naive"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return NaiveReader(self.options["kafka.bootstrap.servers"], self.options["subscribe"])


class NaiveReader(DataSourceReader):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "group.id": "naive", "enable.auto.commit": False}
        self._topic = topic

    def partitions(self) -> list[InputPartition]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._settings)
        found = consumer.list_topics(self._topic).topics[self._topic].partitions
        ends = {each: consumer.get_watermark_offsets(TopicPartition(self._topic, each))[1] for each in sorted(found)}
        consumer.close()
        return [InputPartition(each) for each in ends.items()]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from datetime import UTC, datetime

        from confluent_kafka import Consumer, TopicPartition

        number, end_offset = partition.value
        consumer = Consumer(self._settings)
        consumer.assign([TopicPartition(self._topic, number, 0)])
        offset = 0
        while offset < end_offset:
            for message in consumer.consume(10_000, timeout=1.0):
                offset = (message.offset() or 0) + 1
                kind, time_ms = message.timestamp()
                at = datetime.fromtimestamp(time_ms / 1000, UTC)
                yield message.key(), message.value(), self._topic, number, message.offset(), at, kind - 1
        consumer.close()
