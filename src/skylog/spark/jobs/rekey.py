"""The job `rekey`: a topic once more under another key, so that what belongs together lies in one partition, in order.

This is the boundary between two stages of stream processing: the next stage reads the new topic and finds all records
of a key in one place. Value, headers and time of a record stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls them

from skylog.spark.jobs.directories import check_directory, spark_path
from skylog.spark.jobs.event_fields import EVENT_SCHEMA, event_fields
from skylog.spark.session import make_active
from skylog.spark.source import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from skylog.spark.jobs.schedule import Schedule


def rekey(records: DataFrame, key: str, schema: str = EVENT_SCHEMA) -> DataFrame:
    """`records` with the SQL expression `key` as their key, as rows for the sink.

    The expression sees the fields of the JSON values, such as `attributes.page`, and the struct `record` with the
    columns of the source, such as `record.topic`. Where it is NULL, as it is for values that are no JSON, a record
    goes on without a key.
    """
    kept = [f"record.{name}" for name in ("value", "headers", "timestamp") if name in records.columns]
    rows = event_fields(records, schema).select(F.expr(key).alias("key"), *kept)
    if dict(rows.dtypes)["key"] == "binary":
        return rows
    return rows.withColumn("key", F.col("key").cast("string"))


@dataclass(frozen=True)
class Rekey:
    """The job: from the topics `sources` into `target`, each record once.

    `state` is the checkpoint, with what is about to be sent; driver and executors must share it. Records of one key
    keep their order within a partition of the source.
    """

    bootstrap: str
    sources: Sequence[str]
    target: str
    key: str
    state: Path
    schema: str = EVENT_SCHEMA
    group: str | None = None
    max_offsets: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the source, such as failOnDataLoss."""

    def start(self, spark: SparkSession, schedule: Schedule) -> StreamingQuery:
        """Begin, or go on where the checkpoint ends. Raises DirectoryError for a state that is a URI."""
        check_directory(self.state)
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": ",".join(self.sources),
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            **self.options,
        }
        if self.group is not None:
            options["groupId"] = self.group
        if self.max_offsets is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets)
        make_active(spark)
        records = spark.readStream.format(FORMAT).options(**options).load()
        return (
            rekey(records, self.key, self.schema)
            .writeStream.format(FORMAT)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", self.target)
            .option("checkpointLocation", spark_path(self.state))
            .trigger(**schedule.trigger)
            .start()
        )
