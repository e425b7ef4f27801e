"""The options of the data source when it writes: names and meaning are those of Spark's own Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from skylog.config import parse, setting, settings
from skylog.errors import ConfigError
from skylog.records.compression import Codec
from skylog.spark.errors import OptionError
from skylog.spark.reading.options import BOOTSTRAP, KAFKA_PREFIX

_REFUSED: Final = {
    "key.serializer": "keys are bytes or strings; turn them into either with DataFrame operations",
    "value.serializer": "values are bytes or strings; turn them into either with DataFrame operations",
    "transactional.id": "what is written twice is recognised without transactions",
    "interceptor.classes": "an interceptor could change what is written",
}


@dataclass(frozen=True)
class WriteOptions:
    """Where rows go, and on what way. Made by `write_options`."""

    topic: str | None = setting(
        "topic", None, "The topic of all rows; goes before a column of that name.", kind="string"
    )
    staging_location: str | None = setting(
        "stagingLocation",
        None,
        "A directory that the driver and all executors can write to, for what is about to be sent. If nothing is said, "
        "a stream takes one beside its checkpoint, and what has no checkpoint the directory for temporary files.",
        kind="string",
    )
    checkpoint_location: str | None = setting(
        "checkpointLocation", None, "Where the stream keeps its progress; Spark's own option.", kind="string"
    )
    query_name: str | None = setting("queryName", None, "What a stream is called; Spark's own option.", kind="string")
    include_headers: bool = setting("includeHeaders", False, "Accepted; a column headers is always written.")
    kafka: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return self.kafka["bootstrap.servers"]

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
        """The largest batch or record."""
        return self._number("max.request.size", 1 << 20)

    @property
    def batch_bytes(self) -> int:
        """How large batches may become. Java's default of 16 KiB is for producers that wait; here all is known."""
        return min(self._number("batch.size", self.max_request_bytes), self.max_request_bytes)

    @property
    def request_timeout_ms(self) -> int:
        return self._number("request.timeout.ms", 30_000)

    @property
    def delivery_timeout_s(self) -> float:
        """For how long brokers may give no sign of progress."""
        return self._number("delivery.timeout.ms", 120_000) / 1000

    @property
    def max_block_s(self) -> float:
        """For how long a topic may take to come into being."""
        return self._number("max.block.ms", 10_000) / 1000

    def _number(self, key: str, default: int) -> int:
        text = self.kafka.get(key, str(default))
        try:
            if (number := int(text)) > 0:
                return number
        except ValueError:
            pass
        raise OptionError(f"{KAFKA_PREFIX}{key}={text}: expected a whole number above 0")


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options as Spark hands them over, checked. Names are taken in any case. Raises OptionError."""
    known = {key.lower(): key for key in settings(WriteOptions)}
    lower = {name.lower(): value for name, value in given.items()}
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
        raise OptionError(f"option '{BOOTSTRAP}' must be given: the addresses of some brokers, as host:port,host:port")
    for key, reason in _REFUSED.items():
        if key in options.kafka:
            raise OptionError(f"option '{KAFKA_PREFIX}{key}' is not supported: {reason}")
    protocol = options.kafka.get("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise OptionError(
            f"option '{KAFKA_PREFIX}security.protocol={protocol}': batches are sent over plain connections only; write "
            "to a listener of that kind"
        )
    _ = options.codec, options.batch_bytes, options.request_timeout_ms, options.delivery_timeout_s, options.max_block_s
