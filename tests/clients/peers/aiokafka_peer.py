"""aiokafka behind the interface of a peer: one event loop, run from outside for each operation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from .peer import CODECS, PATIENCE_S, At, ClusterDescription, Config, Place, Position, Refused, Tail
from .record import Record

_DEFAULT_CONFIG_SOURCE = 5
T = TypeVar("T")


def _check(code: int, message: str | None = None) -> None:
    if code:
        raise Refused(code, message or str(errors.for_code(code)))


class AiokafkaReader:
    def __init__(self, runner: asyncio.Runner, consumer: AIOKafkaConsumer) -> None:
        self._runner = runner
        self._consumer = consumer

    def take(self, count: int) -> list[Record]:
        async def collect() -> list[Record]:
            async with asyncio.timeout(PATIENCE_S):
                return [self._record(await self._consumer.getone()) for _ in range(count)]

        return self._runner.run(collect())

    @staticmethod
    def _record(message: Any) -> Record:
        return Record(message.value, message.key, tuple(message.headers), message.timestamp, message.offset)


class AiokafkaPeer:
    codecs = CODECS

    def __init__(self, bootstrap: str, security: Mapping[str, Any] | None = None) -> None:
        """`security` are the arguments for TLS and logins."""
        self.bootstrap = bootstrap
        self._connection: dict[str, Any] = {"bootstrap_servers": bootstrap, **(security or {})}
        self.runner = asyncio.Runner()
        self.admin = self.runner.run(self._started_admin())

    async def _started_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(**self._connection)
        await admin.start()
        return admin

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        try:
            return self.runner.run(operation)
        except errors.BrokerResponseError as failure:
            raise Refused(failure.errno, str(failure)) from failure

    def close(self) -> None:
        self.runner.run(self.admin.close())
        self.runner.close()

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
        async def send() -> None:
            producer = AIOKafkaProducer(
                **self._connection,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                linger_ms=100,
                max_request_size=20 << 20,
            )
            async with producer, asyncio.timeout(PATIENCE_S):
                sent = [
                    await producer.send(topic, rec.value, rec.key, partition, rec.timestamp_ms, list(rec.headers))
                    for rec in records
                ]
                await asyncio.gather(*sent)

        self.run(send())

    @contextmanager
    def open(self, topic: str, partition: int, start: Position) -> Iterator[AiokafkaReader]:
        place = TopicPartition(topic, partition)

        async def position() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(**self._connection, auto_offset_reset="none")
            await consumer.start()
            consumer.assign([place])
            match start:
                case Place.BEGINNING:
                    await consumer.seek_to_beginning(place)
                case Place.END:
                    await consumer.seek_to_end(place)
                case Tail(count):
                    consumer.seek(place, (await consumer.end_offsets([place]))[place] - count)
                case At(timestamp_ms):
                    consumer.seek(place, (await consumer.offsets_for_times({place: timestamp_ms}))[place].offset)
                case int():
                    consumer.seek(place, start)
            await consumer.position(place)
            return consumer

        consumer = self.run(position())
        try:
            yield AiokafkaReader(self.runner, consumer)
        finally:
            self.run(consumer.stop())

    def offset_for(self, topic: str, partition: int, at: Place | At) -> int | None:
        place = TopicPartition(topic, partition)

        async def look_up() -> int | None:
            async with AIOKafkaConsumer(**self._connection) as consumer:
                match at:
                    case Place.BEGINNING:
                        return int((await consumer.beginning_offsets([place]))[place])
                    case Place.END:
                        return int((await consumer.end_offsets([place]))[place])
                    case At(timestamp_ms):
                        found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                        return None if found is None else int(found.offset)

        return self.run(look_up())

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(name, partitions, replication_factor, topic_configs=dict(config or {}))
        answer = self.run(self.admin.create_topics([new], validate_only=validate_only))
        for _, code, message in answer.topic_errors:
            _check(code, message)

    def delete_topic(self, name: str) -> None:
        for _, code in self.run(self.admin.delete_topics([name])).topic_error_codes:
            _check(code)

    def topics(self) -> set[str]:
        return set(self.run(self.admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        (description,) = self.run(self.admin.describe_topics([topic]))
        return len(description["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        self.run(self.admin.create_partitions({topic: NewPartitions(total)}))

    def configs(self, topic: str) -> Mapping[str, Config]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self.run(self.admin.describe_configs([resource], include_synonyms=True))
        ((code, message, _, _, entries),) = answer.resources
        _check(code, message)
        return {name: Config(value, source == _DEFAULT_CONFIG_SOURCE) for name, value, _, source, *_ in entries}

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        answer = self.run(self.admin.alter_configs([resource]))[0]
        ((code, message, *_),) = answer.resources
        _check(code, message)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        place = TopicPartition(topic, partition)
        assert self.run(self.admin.delete_records({place: RecordsToDelete(before)})) == {place: before}

    def cluster(self) -> ClusterDescription:
        description = self.run(self.admin.describe_cluster())
        brokers = {broker["node_id"]: (broker["host"], broker["port"]) for broker in description["brokers"]}
        return ClusterDescription(description["cluster_id"], description["controller_id"], brokers)
