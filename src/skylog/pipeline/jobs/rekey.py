"""The job `rekey`: copies a topic under another key, so that related records are in one partition, in order.

It connects two stages of stream processing: the next stage reads the new topic, in which all records of a key are in
one partition. Value, headers and timestamp of a record do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.event_parser import ENVELOPE, all_fields
from skylog.pipeline.job_definition import Job
from skylog.pipeline.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPTIONS: Final = {"includeHeaders": "true"}


def rekey(records: DataFrame, key: str, schema: str = ENVELOPE) -> DataFrame:
    """Return `records` with the result of the SQL expression `key` as their key, as rows for the sink.

    The expression can use the fields of the JSON values, such as `attributes.page`, and the struct `record` with the
    columns of the source, such as `record.topic`. If it is NULL, for example because the value is not JSON, the record
    has no key.
    """
    kept = [f"record.{name}" for name in ("value", "headers", "timestamp") if name in records.columns]
    rows = all_fields(records, schema).select(F.expr(key).alias("key"), *kept)
    return rows if dict(rows.dtypes)["key"] == "binary" else rows.withColumn("key", F.col("key").cast("string"))


def rekey_job(sources: Sequence[str], into: Topic, key: str, schema: str = ENVELOPE) -> Job:
    """Return the job.

    Records with the same key keep the order that they have in a partition of the source.
    """

    def rekeyed(records: DataFrame) -> DataFrame:
        return rekey(records, key, schema)

    return Job(rekeyed, sources, into, schema=None, name="rekey", options=_OPTIONS)
