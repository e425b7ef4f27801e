"""confluent-kafka: librdkafka behind the interface of a peer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.present import present

from .peer import CODECS, PATIENCE_S, Alteration, At, ClusterDescription, Config, Place, Position, Refused, Tail
from .record import Record

OFFSET_BEGINNING, OFFSET_END, OFFSET_TAIL_BASE = -2, -1, -2000


def _refused(error: KafkaError) -> Refused:
    return Refused(error.code(), error.str())


def _result(future: Future[Any]) -> Any:
    try:
        return future.result(PATIENCE_S)
    except KafkaException as failure:
        raise _refused(failure.args[0]) from failure


class ConfluentReader:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def take(self, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < count:
            message = self._consumer.poll(max(deadline - time.monotonic(), 0))
            if message is None:
                raise TimeoutError(f"{len(records)} of {count} records came")
            if message.error() is None:
                records.append(self._record(message))
            elif present(message.error()).code() != KafkaError._PARTITION_EOF:
                raise _refused(present(message.error()))
        return records

    def settle(self) -> None:
        """Wait for the report that the position is the end."""
        message = self._consumer.poll(PATIENCE_S)
        assert message is not None
        assert present(message.error()).code() == KafkaError._PARTITION_EOF, message.error()

    @staticmethod
    def _record(message: Any) -> Record:
        headers = tuple(message.headers() or ())
        return Record(message.value(), message.key(), headers, message.timestamp()[1], message.offset())


class ConfluentPeer:
    codecs = CODECS

    def __init__(self, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
        """`security` are the settings of TLS and logins."""
        self.bootstrap = bootstrap
        self._connection = {"bootstrap.servers": bootstrap, **(security or {})}
        self.admin = AdminClient(dict(self._connection))

    def consumer(self, **config: Any) -> Consumer:
        """A consumer without a group: librdkafka wants a group id set, and never uses it with assign()."""
        defaults = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"}
        return Consumer({**self._connection, **defaults, **config})

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        failures: list[KafkaError] = []
        producer = Producer(
            {
                **self._connection,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 100,  # one batch of all records: one that does not shrink is sent uncompressed
                "message.max.bytes": 20 << 20,
            }
        )
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(PATIENCE_S) == 0
        if failures:
            raise _refused(failures[0])

    @contextmanager
    def open(self, topic: str, partition: int, start: Position) -> Iterator[ConfluentReader]:
        consumer = self.consumer(**{"enable.partition.eof": True})
        try:
            match start:
                case Place.BEGINNING:
                    offset = OFFSET_BEGINNING
                case Place.END:
                    offset = OFFSET_END
                case Tail(count):
                    offset = OFFSET_TAIL_BASE - count
                case At():
                    offset = self._offset_at(consumer, topic, partition, start)
                case int():
                    offset = start
            consumer.assign([TopicPartition(topic, partition, offset)])
            reader = ConfluentReader(consumer)
            if start is Place.END:
                reader.settle()
            yield reader
        finally:
            consumer.close()

    @staticmethod
    def _offset_at(consumer: Consumer, topic: str, partition: int, at: At) -> int:
        wanted = TopicPartition(topic, partition, at.timestamp_ms)
        return int(consumer.offsets_for_times([wanted], timeout=PATIENCE_S)[0].offset)

    def offset_for(self, topic: str, partition: int, at: Place | At) -> int | None:
        match at:
            case Place.BEGINNING:
                spec = OffsetSpec.earliest()
            case Place.END:
                spec = OffsetSpec.latest()
            case At(timestamp_ms):
                spec = OffsetSpec.for_timestamp(timestamp_ms)
        (future,) = self.admin.list_offsets({TopicPartition(topic, partition): spec}).values()
        offset = int(_result(future).offset)
        return None if offset == -1 else offset

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        _result(self.admin.create_topics([new], validate_only=validate_only)[name])

    def delete_topic(self, name: str) -> None:
        _result(self.admin.delete_topics([name])[name])

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=PATIENCE_S).topics)

    def partition_count(self, topic: str) -> int:
        return len(self.admin.list_topics(timeout=PATIENCE_S).topics[topic].partitions)

    def create_partitions(self, topic: str, total: int) -> None:
        _result(self.admin.create_partitions([NewPartitions(topic, total)])[topic])

    def configs(self, topic: str) -> Mapping[str, Config]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = _result(self.admin.describe_configs([resource])[resource])
        return {name: Config(entry.value, entry.is_default) for name, entry in entries.items()}

    def alter_config(self, topic: str, operation: Alteration, key: str, value: str | None) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType[operation.name])
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        _result(self.admin.incremental_alter_configs([resource])[resource])

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(configs))
        _result(self.admin.alter_configs([resource])[resource])

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        (future,) = self.admin.delete_records([TopicPartition(topic, partition, before)]).values()
        assert _result(future).low_watermark == before

    def cluster(self) -> ClusterDescription:
        description = _result(self.admin.describe_cluster())
        brokers = {node.id: (node.host, node.port) for node in description.nodes}
        return ClusterDescription(description.cluster_id, description.controller.id, brokers)
