"""kafka-python 3 behind the interface of a peer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition, codec, errors
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec

from .peer import PATIENCE_S, Alteration, At, ClusterDescription, Config, Place, Position, Refused, Tail
from .record import Record

_CODEC_OF_LIBRARY = {"snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}


@contextmanager
def refusals() -> Iterator[None]:
    """Report an answer of the broker as Refused; the client's own errors pass."""
    try:
        yield
    except errors.BrokerResponseError as failure:
        raise Refused(failure.errno, str(failure)) from failure


class KafkaPythonReader:
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def take(self, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < count:
            for messages in self._consumer.poll(timeout_ms=500, max_records=count - len(records)).values():
                records.extend(self._record(message) for message in messages)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(records)} of {count} records came")
        return records

    @staticmethod
    def _record(message: Any) -> Record:
        return Record(message.value, message.key, tuple(message.headers), message.timestamp, message.offset)


class KafkaPythonPeer:
    def __init__(self, bootstrap: str, security: Mapping[str, Any] | None = None) -> None:
        """`security` are the arguments for TLS and logins."""
        self.bootstrap = bootstrap
        self._connection: dict[str, Any] = {"bootstrap_servers": bootstrap, **(security or {})}
        self.codecs = ("none", "gzip", *(name for name, is_there in _CODEC_OF_LIBRARY.items() if is_there()))
        self.admin = KafkaAdminClient(**self._connection)

    def close(self) -> None:
        self.admin.close()

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
        producer = KafkaProducer(
            **self._connection,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=100,
            max_request_size=20 << 20,
        )
        try:
            futures = [
                producer.send(topic, rec.value, rec.key, list(rec.headers), partition, rec.timestamp_ms)
                for rec in records
            ]
            producer.flush(PATIENCE_S)
            with refusals():
                for future in futures:
                    future.get(PATIENCE_S)
        finally:
            producer.close(timeout=PATIENCE_S)

    @contextmanager
    def open(self, topic: str, partition: int, start: Position) -> Iterator[KafkaPythonReader]:
        place = TopicPartition(topic, partition)
        consumer = KafkaConsumer(**self._connection, auto_offset_reset="none", fetch_max_wait_ms=50)
        try:
            consumer.assign([place])
            match start:
                case Place.BEGINNING:
                    consumer.seek_to_beginning(place)
                case Place.END:
                    consumer.seek_to_end(place)
                case Tail(count):
                    consumer.seek(place, consumer.end_offsets([place])[place] - count)
                case At(timestamp_ms):
                    consumer.seek(place, consumer.offsets_for_times({place: timestamp_ms})[place].offset)
                case int():
                    consumer.seek(place, start)
            consumer.position(place)
            yield KafkaPythonReader(consumer)
        finally:
            consumer.close()

    def offset_for(self, topic: str, partition: int, at: Place | At) -> int | None:
        match at:
            case Place.BEGINNING:
                spec = OffsetSpec.EARLIEST
            case Place.END:
                spec = OffsetSpec.LATEST
            case At(timestamp_ms):
                spec = timestamp_ms
        with refusals():
            (found,) = self.admin.list_partition_offsets({TopicPartition(topic, partition): spec}).values()
        return None if found is None or found.offset == -1 else int(found.offset)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        options = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(config or {}),
        }
        with refusals():
            self.admin.create_topics({name: options}, validate_only=validate_only)

    def delete_topic(self, name: str) -> None:
        with refusals():
            self.admin.delete_topics([name])

    def topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def partition_count(self, topic: str) -> int:
        (description,) = self.admin.describe_topics([topic])
        return len(description["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        with refusals():
            self.admin.create_partitions({topic: total})

    def configs(self, topic: str) -> Mapping[str, Config]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        entries = self.admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {
            name: Config(entry["value"], entry["config_source"] == "DEFAULT_CONFIG") for name, entry in entries.items()
        }

    def alter_config(self, topic: str, operation: Alteration, key: str, value: str | None) -> None:
        self._alter(topic, {key: (AlterConfigOp[operation.name], value)}, incremental=True)

    def _alter(self, topic: str, configs: Mapping[str, Any], incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        answer = self.admin.alter_configs([resource], raise_on_unknown=False, incremental=incremental)
        outcome = answer["topic"][topic]
        if outcome != "OK":
            error = getattr(errors, outcome.partition(":")[0].split("]")[-1].strip())
            raise Refused(error.errno, outcome)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        place = TopicPartition(topic, partition)
        with refusals():
            answer = self.admin.delete_records({place: before})
        assert answer[place]["low_watermark"] == before

    def cluster(self) -> ClusterDescription:
        description = self.admin.describe_cluster()
        brokers = {broker["broker_id"]: (broker["host"], broker["port"]) for broker in description["brokers"]}
        return ClusterDescription(description["cluster_id"], description["controller_id"], brokers)
