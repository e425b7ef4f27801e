"""The columns of the sink, which are those of Spark's own Kafka sink, and the partition of each row.

    topic      string           required unless the option topic is set
    key        string, binary   optional
    value      string, binary   required
    headers    array of (key string, value binary), optional
    partition  int              optional; if null or absent, the key decides
    timestamp  timestamp        optional; if null or absent, the current time

Other columns are ignored, as in Spark's sink.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.spark.errors import OptionError
from skylog.spark.schema import HEADERS
from skylog.spark.writing.encoder import RecordRows, byte_ranges, large_binary
from skylog.spark.writing.murmur2 import murmur2

RUN_BYTES: Final = 16 << 10
"""Rows without a key go to one partition for this many bytes, then to the next."""
_ROW_BYTES: Final = 16  # counted in addition to the value, so that empty values are spread too

PartitionCount = Callable[[str], int]


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise OptionError for missing columns and wrong types."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise OptionError("required column 'value' is missing; columns: " + ", ".join(types))
    if topic is None and "topic" not in types:
        raise OptionError("no topic is set: set the option topic, or add a column of that name")
    for name, kinds in {"key": _BYTES, "value": _BYTES, "topic": (StringType,), "partition": (IntegerType,)}.items():
        if name in types and not isinstance(types[name], kinds):
            expected = " or ".join(kind.typeName() for kind in kinds)
            raise OptionError(f"column '{name}' has type {types[name].simpleString()}; cast it to {expected}")
    if "headers" in types and not _are_headers(types["headers"]):
        raise OptionError(
            f"column 'headers' has type {types['headers'].simpleString()}; cast it to {HEADERS.simpleString()}"
        )


_BYTES: Final = (StringType, BinaryType)


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


class RowColumns:
    """Converts rows to records, and chooses their partitions. One per task: keyless rows continue round-robin."""

    def __init__(self, schema: StructType, topic: str | None, partition_count: PartitionCount) -> None:
        types = {field.name: field.dataType for field in schema.fields}
        self._has_timestamp = isinstance(types.get("timestamp"), TimestampType)
        self._names = [name for name in ("key", "value", "headers") if name in types]
        self._topic = topic
        self._has_partition = "partition" in types
        self._partition_count = partition_count
        self._keyless_bytes = random.randrange(1 << 20) * RUN_BYTES  # tasks start with different partitions
        self.targets: list[TopicPartition] = []
        """The partitions of all topics so far. A row's target is an index into this list."""
        self._first_target: dict[str, tuple[int, int]] = {}

    def records(self, rows: pa.RecordBatch) -> tuple[RecordRows, NDArray[np.int64]]:
        """Return the records, and the target of each."""
        found = {name: rows.column(name) for name in self._names}
        key = found.get("key")
        if key is not None and key.null_count == len(key):
            key = None
        headers = found.get("headers")
        if headers is not None and headers.null_count == len(headers):
            headers = None
        records = RecordRows(
            large_binary(found["value"]), None if key is None else large_binary(key), headers, self._timestamps(rows)
        )
        return records, self._targets(rows, records)

    def _timestamps(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        now_ms = time.time_ns() // 1_000_000
        if not self._has_timestamp:
            return np.full(rows.num_rows, now_ms)
        micros = pc.fill_null(rows.column("timestamp").cast(pa.int64()), now_ms * 1000)
        times: NDArray[np.int64] = _numbers(micros) // 1000
        if times.min(initial=0) < 0:
            raise SkylogError("column 'timestamp' has a time before 1970, which Kafka's record format does not support")
        return times

    def _targets(self, rows: pa.RecordBatch, records: RecordRows) -> NDArray[np.int64]:
        first, count = self._topics(rows)
        chosen = self._by_key(records, count)
        if self._has_partition:
            given = rows.column("partition")
            is_given = ~_flags(given.is_null())
            chosen = np.where(is_given, _numbers(pc.fill_null(given, 0)), chosen)
            wrong = np.flatnonzero((chosen < 0) | (chosen >= count))
            if len(wrong):
                row = int(wrong[0])
                topic = self.targets[int(np.broadcast_to(first, len(chosen))[row])].topic
                most = int(np.broadcast_to(count, len(chosen))[row]) - 1
                raise SkylogError(f"column 'partition' has {chosen[row]}; topic '{topic}' has partitions 0 to {most}")
        found: NDArray[np.int64] = first + chosen
        return found

    def _topics(self, rows: pa.RecordBatch) -> tuple[Any, Any]:
        """Return the first target and the number of targets of each row's topic, or of the topic of all rows."""
        if self._topic is not None:
            return self._known(self._topic)
        topics = rows.column("topic")
        if topics.null_count:
            raise SkylogError("column 'topic' has a null: fill it, or set the option topic")
        encoded = topics.dictionary_encode()
        known = np.array([self._known(name) for name in encoded.dictionary.to_pylist()], dtype=np.int64)
        of_rows = known[_numbers(encoded.indices)]
        return of_rows[:, 0], of_rows[:, 1]

    def _known(self, topic: str) -> tuple[int, int]:
        if topic not in self._first_target:
            count = self._partition_count(topic)
            self._first_target[topic] = len(self.targets), count
            self.targets += [TopicPartition(topic, number) for number in range(count)]
        return self._first_target[topic]

    def _by_key(self, records: RecordRows, count: Any) -> NDArray[np.int64]:
        if records.key is None:
            return _modulo(self._round_robin(records.value), count)
        data, bounds = byte_ranges(records.key)
        hashes = murmur2(data, bounds[:-1], np.diff(bounds)).astype(np.int64) & 0x7FFFFFFF
        if records.key.null_count:
            is_null = _flags(records.key.is_null())
            hashes[is_null] = self._round_robin(records.value.filter(pa.array(is_null)))
        return _modulo(hashes, count)

    def _round_robin(self, values: pa.LargeBinaryArray) -> NDArray[np.int64]:
        bounds = byte_ranges(values)[1]
        bounds += np.arange(len(bounds)) * _ROW_BYTES + self._keyless_bytes
        self._keyless_bytes = int(bounds[-1])
        return bounds[:-1] // RUN_BYTES


def _modulo(numbers: NDArray[np.int64], count: Any) -> NDArray[np.int64]:
    found: NDArray[np.int64] = numbers % count
    return found


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _flags(column: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return found
