"""Topics as sinks of jobs: the columns of a result as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNPARSED: Final = "__unparsed"
_RECORD: Final = ("key", "value", "headers", "timestamp", "partition")
_HEADERS: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


@dataclass(frozen=True)
class Topic:
    """A topic. It is created if it does not exist, with as many partitions as the topic that the job reads.

        Topic("flagged", partitions=4, configs={"cleanup.policy": "compact"})

    The columns `key`, `value`, `headers`, `timestamp` and `partition` of a result become the record. A result without
    `value` is sent as JSON: an object of all its other columns.
    """

    name: str
    partitions: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return self.name

    def for_unparsed(self) -> Topic:
        """Return the topic of records that do not parse: the same name with `__unparsed`."""
        return replace(self, name=self.name + UNPARSED, configs={})

    def ensure(self, cluster: Cluster, like: str) -> bool:
        """Create the topic if it does not exist. Return whether it was created."""
        return cluster.ensure_topic(self.name, self.partitions, self.configs, like=like)


def record_rows(rows: DataFrame) -> DataFrame:
    """Return rows for the data source's sink. Structs, maps and arrays in `value` become JSON."""
    kinds = dict(rows.dtypes)
    if "value" not in kinds:
        others = [F.col(f"`{name}`") for name in rows.columns if name not in _RECORD]
        rows = rows.withColumn("value", F.to_json(F.struct(*others)))
    elif kinds["value"].startswith(("struct", "map", "array")):
        rows = rows.withColumn("value", F.to_json("value"))
    wanted = [
        _binary(rows, name) if name in ("key", "value") else F.col(name) for name in _RECORD if name in rows.columns
    ]
    return rows.select(*wanted)


def unparsed_rows(unparsed: DataFrame) -> DataFrame:
    """Return the rows of `events.unparsed` as records: key and value as they were, and their origin as headers."""
    headers = F.array(
        *(
            F.struct(F.lit(name).alias("key"), F.col(name).cast("string").cast("binary").alias("value"))
            for name in ("reason", "topic", "partition", "offset")
        )
    )
    return unparsed.select("key", "value", headers.cast(_HEADERS).alias("headers"), "timestamp")


def _binary(rows: DataFrame, name: str) -> Column:
    kind = dict(rows.dtypes)[name]
    column = F.col(f"`{name}`")
    return column if kind in ("string", "binary") else column.cast("string").alias(name)
