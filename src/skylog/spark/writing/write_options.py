"""The write options of the data source. Names and meaning are those of Spark's own Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from skylog.config import parse, setting, settings
from skylog.errors import ConfigError
from skylog.records.compression import Codec
from skylog.spark.errors import OptionError
from skylog.spark.given_options import source_options
from skylog.spark.reading.options import BOOTSTRAP, KAFKA_PREFIX, ReadOptions
from skylog.spark.security import Security

_UNSUPPORTED: Final = {
    "key.serializer": "keys are bytes or strings; convert them with DataFrame operations",
    "value.serializer": "values are bytes or strings; convert them with DataFrame operations",
    "transactional.id": "set the option transactional; the id follows from the query",
    "interceptor.classes": "an interceptor could change the records",
}


@dataclass(frozen=True)
class WriteOptions:
    """Where and how to write rows. Created by `write_options`."""

    topic: str | None = setting(
        "topic", None, "The topic of all rows. Takes precedence over the column topic.", kind="string"
    )
    topic_partitions: int | None = setting(
        "topicPartitions",
        None,
        "The number of partitions of a topic that the sink creates. The default is the broker's num.partitions if it "
        "is set, and 6 otherwise. If you set the option, missing topics are created even if the broker does not "
        "auto-create topics.",
        kind="int",
        minimum=1,
    )
    staging_location: str | None = setting(
        "stagingLocation",
        None,
        "The directory for batches until they are sent. The driver and all executors must share it. The default is a "
        "directory beside the checkpoint, or the directory for temporary files if there is no checkpoint. For a batch "
        "write, and with transactional, it can be in an object store: s3://bucket/path, gs://…, abfs://…",
        kind="string",
    )
    checkpoint_location: str | None = setting(
        "checkpointLocation", None, "Where Spark stores the progress of the stream (Spark's option).", kind="string"
    )
    query_name: str | None = setting("queryName", None, "The name of the stream (Spark's option).", kind="string")
    transactional: bool = setting(
        "transactional",
        False,
        "Write every micro-batch, and every batch write, in one transaction: consumers that read committed records see "
        "all of it or nothing. kafka.transaction.timeout.ms (5 minutes) limits how long sending it may take.",
    )
    include_headers: bool = setting("includeHeaders", False, "Ignored; the column headers is always written.")
    kafka: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return self.kafka["bootstrap.servers"]

    @property
    def security(self) -> Security:
        return Security.of(self.kafka)

    @property
    def codec(self) -> Codec:
        name = self.kafka.get("compression.type", "none")
        try:
            return Codec[name.strip().upper()]
        except KeyError:
            names = ", ".join(codec.name.lower() for codec in Codec)
            raise OptionError(f"kafka.compression.type={name}: expected one of {names}") from None

    @property
    def max_request_bytes(self) -> int:
        """The maximum size of a request, and so of a batch or a record."""
        return self._number("max.request.size", 1 << 20)

    @property
    def batch_bytes(self) -> int:
        """The target size of batches. Java's default of 16 KiB is for lingering producers; here all rows are known."""
        return min(self._number("batch.size", self.max_request_bytes), self.max_request_bytes)

    @property
    def request_timeout_ms(self) -> int:
        return self._number("request.timeout.ms", 30_000)

    @property
    def delivery_timeout_s(self) -> float:
        """The time without progress after which sending fails."""
        return self._number("delivery.timeout.ms", 120_000) / 1000

    @property
    def transaction_timeout_ms(self) -> int:
        """The time after which brokers abort a transaction. A driver that starts again aborts its own at once."""
        return self._number("transaction.timeout.ms", 300_000)

    @property
    def max_block_s(self) -> float:
        """The time to wait for the metadata of a topic, which may have to be created."""
        return self._number("max.block.ms", 10_000) / 1000

    def _number(self, key: str, default: int) -> int:
        text = self.kafka.get(key, str(default))
        try:
            if (number := int(text)) > 0:
                return number
        except ValueError:
            pass
        raise OptionError(f"{KAFKA_PREFIX}{key}={text}: expected a positive integer")


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse and validate the options given by Spark. Names are case-insensitive. Raises OptionError."""
    known = {key.lower(): key for key in settings(WriteOptions)}
    source_only = {key.lower() for key in settings(ReadOptions)} - known.keys()
    lower = source_options(given, source_only)
    kafka = {name.removeprefix(KAFKA_PREFIX): text for name, text in lower.items() if name.startswith(KAFKA_PREFIX)}
    values = {known.get(name, name): text for name, text in lower.items() if not name.startswith(KAFKA_PREFIX)}
    try:
        options = replace(parse(WriteOptions, values), kafka=kafka)
    except ConfigError as error:
        raise OptionError(str(error)) from error
    _check(options)
    return options


def _check(options: WriteOptions) -> None:
    if not options.kafka.get("bootstrap.servers"):
        raise OptionError(f"option '{BOOTSTRAP}' is required: broker addresses, as host:port,host:port")
    for key, reason in _UNSUPPORTED.items():
        if key in options.kafka:
            raise OptionError(f"option '{KAFKA_PREFIX}{key}' is not supported: {reason}")
    if options.security.is_encrypted:
        _ = options.security.context()  # raises OptionError if a certificate cannot be read
    _ = options.codec, options.batch_bytes, options.request_timeout_ms, options.delivery_timeout_s, options.max_block_s
    _ = options.transaction_timeout_ms
