"""The read options of the data source. Names and meaning are those of Spark's own Kafka source.

An unknown option is an error that names the nearest known one. `kafka.*` options are passed to the clients unchanged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from skylog.config import parse, setting, settings
from skylog.errors import ConfigError
from skylog.spark.errors import OptionError
from skylog.spark.given_options import SINK_ONLY, source_options

KAFKA_PREFIX: Final = "kafka."
REGISTRY_PREFIX: Final = "schemaregistry."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
STRATEGIES: Final = ("assign", "subscribe", "subscribePattern")

_UNSUPPORTED: Final = {
    "auto.offset.reset": "set the start with the option startingOffsets",
    "key.deserializer": "keys are always bytes; convert them with DataFrame operations",
    "value.deserializer": "values are always bytes; convert them with DataFrame operations",
    "enable.auto.commit": "Spark stores the progress itself; use the option groupId to also commit it to a group",
    "interceptor.classes": "an interceptor could change the records",
}
_UNITS_MS: Final = {"ms": 1, "": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)")


@dataclass(frozen=True)
class ReadOptions:
    """What to read, from where to where, and in which batch sizes. Created by `read_options`."""

    assign: str | None = setting("assign", None, 'Partitions, as JSON: {"topic": [0, 1]}.', kind="string")
    subscribe: str | None = setting("subscribe", None, "Topics, separated by commas.", kind="string")
    subscribe_pattern: str | None = setting(
        "subscribePattern", None, "A regular expression that matches whole topic names.", kind="string"
    )
    starting_offsets: str | None = setting(
        "startingOffsets",
        None,
        'earliest, latest, committed (by groupId), or JSON: {"topic": {"0": 23, "1": -2}} with -2 for earliest and '
        "-1 for latest. The default is earliest for a batch and latest for a stream.",
        kind="string",
    )
    starting_offsets_by_timestamp: str | None = setting(
        "startingOffsetsByTimestamp", None, 'Milliseconds since 1970: {"topic": {"0": 1700000000000}}.', kind="string"
    )
    starting_timestamp: int | None = setting(
        "startingTimestamp", None, "Milliseconds since 1970, for all partitions.", kind="long", minimum=0
    )
    starting_strategy: str = setting(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What to do if a partition has no record at or after the starting time.",
        choices=("error", "latest"),
    )
    ending_offsets: str | None = setting(
        "endingOffsets", None, "latest, or JSON as for startingOffsets; not for streams.", kind="string"
    )
    ending_offsets_by_timestamp: str | None = setting(
        "endingOffsetsByTimestamp", None, "As startingOffsetsByTimestamp; not for streams.", kind="string"
    )
    ending_timestamp: int | None = setting(
        "endingTimestamp", None, "As startingTimestamp; not for streams.", kind="long", minimum=0
    )
    max_offsets_per_trigger: int | None = setting(
        "maxOffsetsPerTrigger",
        None,
        "The approximate maximum size of a micro-batch in offsets.",
        kind="long",
        minimum=1,
    )
    min_offsets_per_trigger: int | None = setting(
        "minOffsetsPerTrigger", None, "The number of new offsets that starts a micro-batch.", kind="long", minimum=1
    )
    max_trigger_delay: str = setting("maxTriggerDelay", "15m", "The maximum time to wait for minOffsetsPerTrigger.")
    min_partitions: int | None = setting(
        "minPartitions", None, "The approximate minimum number of tasks.", kind="int", minimum=1
    )
    max_records_per_partition: int | None = setting(
        "maxRecordsPerPartition", None, "The maximum number of offsets per task.", kind="long", minimum=1
    )
    fail_on_data_loss: bool = setting(
        "failOnDataLoss", True, "Fail if requested offsets no longer exist. If false, log a warning and continue."
    )
    include_headers: bool = setting("includeHeaders", False, "Add the column headers.")
    value_format: str | None = setting(
        "valueFormat",
        None,
        "json: parse values into the column event, by valueSchema. The column _corrupt has the text of other values. "
        "avro: decode values into the column event, by the schemas of a registry. The column _corrupt has the reason "
        "why a value was not decoded.",
        kind="string",
        choices=("json", "avro"),
    )
    value_schema: str | None = setting(
        "valueSchema",
        None,
        "The fields of the values, in Spark's DDL: user STRING, visits INT. For Avro, the default is the fields of all "
        "versions of the schema.",
        kind="string",
    )
    schema_registry_url: str | None = setting(
        "schemaRegistryUrl",
        None,
        "The address of the schema registry, for Avro. Several are separated by commas. Other settings have the prefix "
        "schemaRegistry: schemaRegistry.basic.auth.user.info, schemaRegistry.ssl.ca.location, ...",
        kind="string",
    )
    value_subject: str | None = setting(
        "valueSubject",
        None,
        "The subjects of the registry whose fields are the columns, separated by commas; orders-* is all that begin "
        "with orders-. The default is TOPIC-value, or else all that are TOPIC- and the name of a record.",
        kind="string",
    )
    push_down_filters: bool = setting(
        "pushDownFilters",
        False,
        "Read only the ranges that match the query's filters on topic, partition, offset and timestamp. Requires "
        "spark.sql.python.filterPushdown.enabled. Spark uses the narrowed ranges for every later query on the same "
        "DataFrame, so load a new DataFrame for each query.",
    )
    group_id: str | None = setting(
        "groupId", None, "Commit the stream's progress to this consumer group.", kind="string"
    )
    group_id_prefix: str | None = setting("groupIdPrefix", None, "Ignored, because no group is joined.", kind="string")
    poll_timeout_ms: int = setting(
        "kafkaConsumer.pollTimeoutMs", 120_000, "The time without records after which a task fails.", minimum=1
    )
    fetch_offset_retries: int = setting("fetchOffset.numRetries", 3, "Ignored, because the client retries by itself.")
    fetch_offset_interval_ms: int = setting("fetchOffset.retryIntervalMs", 1000, "Ignored, like numRetries.")
    kafka: Mapping[str, str] = field(default_factory=dict)
    registry: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return self.kafka["bootstrap.servers"]

    @property
    def max_trigger_delay_ms(self) -> int:
        match = _DURATION.fullmatch(self.max_trigger_delay.strip().lower())
        if match is None or match[2] not in _UNITS_MS:
            raise OptionError(f"maxTriggerDelay={self.max_trigger_delay}: expected a duration such as 90s or 15m")
        return int(match[1]) * _UNITS_MS[match[2]]

    @property
    def committing_group(self) -> str | None:
        """The group for commits and for startingOffsets=committed."""
        return self.group_id or self.kafka.get("group.id")


def read_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Parse and validate the options given by Spark. Names are case-insensitive. Raises OptionError."""
    known = {key.lower(): key for key in settings(ReadOptions)}
    kafka: dict[str, str] = {}
    registry: dict[str, str] = {}
    values: dict[str, str] = {}
    for name, value in source_options(given, SINK_ONLY).items():
        if name.startswith(KAFKA_PREFIX):
            kafka[name.removeprefix(KAFKA_PREFIX)] = value
        elif name.startswith(REGISTRY_PREFIX):
            registry[name.removeprefix(REGISTRY_PREFIX)] = value
        elif name in known:
            values[known[name]] = value
        else:
            raise OptionError(f"unknown option '{name}'{_hint(name, known)}")
    try:
        options = parse(ReadOptions, values)
        if options.schema_registry_url is not None:
            from skylog.schemas.registry_http import URL, RegistryAddress  # imports HTTP and TLS

            registry[URL] = options.schema_registry_url
            RegistryAddress.of(registry)
        options = replace(options, kafka=kafka, registry=registry)
    except ConfigError as error:
        raise OptionError(str(error)) from error
    _check(options, values, is_stream=is_stream)
    return options


def _hint(name: str, known: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(name, [*known, BOOTSTRAP], n=1, cutoff=0.5)
    return f"; did you mean '{known.get(close[0], close[0])}'?" if close else ""


def _check(options: ReadOptions, values: Mapping[str, Any], *, is_stream: bool) -> None:
    if not options.kafka.get("bootstrap.servers"):
        raise OptionError(f"option '{BOOTSTRAP}' is required: broker addresses, as host:port,host:port")
    chosen = [name for name in STRATEGIES if name in values]
    if len(chosen) != 1:
        how_many = "only one" if chosen else "one"
        raise OptionError(f"set {how_many} of the options {', '.join(STRATEGIES)}, to select what to read")
    if not values[chosen[0]].strip():
        raise OptionError(f"option '{chosen[0]}' is empty: name at least one topic")
    for key, reason in _UNSUPPORTED.items():
        if key in options.kafka:
            raise OptionError(f"option '{KAFKA_PREFIX}{key}' is not supported: {reason}")
    if is_stream and (ending := [name for name in values if name.startswith("ending")]):
        raise OptionError(f"option '{ending[0]}' is not supported for streaming queries, which have no end")
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(f"minOffsetsPerTrigger={low} is more than maxOffsetsPerTrigger={high}")
    _check_values(options)
    _ = options.max_trigger_delay_ms  # raises OptionError if invalid


def _check_values(options: ReadOptions) -> None:
    is_avro = options.value_format == "avro"
    if not is_avro and (options.value_format is None) != (options.value_schema is None):
        raise OptionError("set both valueFormat and valueSchema, as in valueFormat=json, valueSchema=user STRING")
    if is_avro and options.schema_registry_url is None:
        raise OptionError("valueFormat=avro needs schemaRegistryUrl, such as http://127.0.0.1:8081")
    if not is_avro and (options.registry or options.value_subject is not None):
        raise OptionError("schemaRegistryUrl, schemaRegistry.* and valueSubject are for valueFormat=avro: set that too")
