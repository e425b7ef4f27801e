"""The effective reports of an audit as a DataFrame: without duplicates and replaced ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.audit.ledger import check_report
from skylog.audit.report import Count, Report, ReportError, Tier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT_FIELDS: Final = ("start_ms", "end_ms", "messages", "size_bytes", "uncertain")
COUNTS: Final = f"ARRAY<STRUCT<{', '.join(f'{name}: LONG' for name in COUNT_FIELDS)}>>"
SCHEMA: Final = (
    "id STRING, tier STRING, source STRING, topic STRING, partition LONG, start_offset LONG, end_offset LONG, "
    f"reported_at_ms LONG, counts {COUNTS}, audit_partition INT, audit_offset LONG"
)
"""A report, and its position in the audit topic: later reports may replace earlier ones."""

LARGEST: Final = 1 << 53
"""The largest integer that every JSON writer can represent. Larger numbers are invalid, so sums fit in 64 bits."""

_SPREAD: Final = 1024
_AFTER_ALL_PARTITIONS: Final = (1 << 31) - 1
_COUNT_TYPE: Final = pa.struct([(name, pa.int64()) for name in COUNT_FIELDS])
_ARROW_SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("tier", pa.string()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("reported_at_ms", pa.int64()),
        ("counts", pa.list_(_COUNT_TYPE)),
        ("audit_partition", pa.int32()),
        ("audit_offset", pa.int64()),
    ]
)


def reports(records: DataFrame, pending: Sequence[Report] = ()) -> DataFrame:
    """Return the effective reports in `records` of the audit topic, as read by `format("skylog")`.

    `pending` are the reports in the commits of consumer groups, which may not be published yet. A duplicate report
    counts once, and a stored report replaces earlier ones, as described in `skylog.audit.ledger`.
    """
    return effective(decoded(records), pending)


def decoded(records: DataFrame) -> DataFrame:
    """Return a row for each record. The id is null if the record is not a report."""
    return records.select("value", "partition", "offset").mapInArrow(_decode_batches, SCHEMA)


def effective(messages: DataFrame, pending: Sequence[Report] = ()) -> DataFrame:
    """Return the effective reports of decoded messages.

    Adds the column `least_end_offset`: the smallest end offset of a stored report and those after it. A reader at that
    offset has read the whole report.
    """
    found = messages.filter("id IS NOT NULL")
    if pending:
        found = found.unionByName(_not_replaced(_pending_frame(messages.sparkSession, pending), found))
    first = Window.partitionBy("id").orderBy("audit_partition", "audit_offset")
    once = found.withColumn("_number", F.row_number().over(first)).filter("_number = 1").drop("_number")
    # One pass for all tiers: the stored reports of a partition are grouped, the others stay spread over the cluster.
    is_stored = F.col("tier") == Tier.STORED.value
    placed = once.withColumn(
        "_place", F.when(is_stored, F.col("partition")).otherwise(F.pmod(F.hash("id"), F.lit(_SPREAD)))
    )
    # In descending order, so that Spark keeps a running minimum instead of scanning all later rows for each row.
    back = Window.partitionBy("topic", "tier", "_place").orderBy(F.desc("audit_partition"), F.desc("audit_offset"))
    later_start = F.min("start_offset").over(back.rowsBetween(Window.unboundedPreceding, -1))
    least_end = F.min("end_offset").over(back.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return (
        placed.withColumn("_later_start", later_start)
        .filter(~is_stored | F.col("_later_start").isNull() | (F.col("start_offset") < F.col("_later_start")))
        .withColumn("least_end_offset", F.when(is_stored, least_end))
        .drop("_later_start", "_place")
    )


def _pending_frame(spark: SparkSession, pending: Sequence[Report]) -> DataFrame:
    rows = [
        (*_fields(report), list(map(_numbers, report.counts)), _AFTER_ALL_PARTITIONS, number)
        for number, report in enumerate(pending)
        if _is_valid(report)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def _not_replaced(pending: DataFrame, published: DataFrame) -> DataFrame:
    """Return the pending reports that are not part of a later, published report, which contains all their offsets."""
    whole, part = published.alias("whole"), F.broadcast(pending.alias("part"))
    is_included = (
        "whole.tier = 'consumed' AND whole.source = part.source AND whole.topic = part.topic "
        "AND whole.partition = part.partition AND whole.reported_at_ms >= part.reported_at_ms "
        "AND whole.start_offset <= part.start_offset AND part.end_offset <= whole.end_offset"
    )
    replaced = whole.join(part, F.expr(is_included)).select(F.col("part.id").alias("id")).distinct()
    return pending.join(replaced, "id", "left_anti")


# -- decoding, in Python, with the functions that every reader of the audit topic uses


def _decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [_decode(value) for value in batch.column("value").to_pylist()]
        yield _record_batch(found, batch.column("partition"), batch.column("offset"))


def _decode(value: bytes | None) -> Report | None:
    try:
        report = Report.decode(value or b"")
    except (ReportError, OverflowError):
        return None
    return report if _is_valid(report) else None


def _is_valid(report: Report) -> bool:
    try:
        check_report(report)
    except ReportError:
        return False
    offsets = (report.partition or 0, report.start_offset or 0, report.end_offset or 0, report.reported_at_ms)
    return max(map(abs, offsets)) <= LARGEST and all(
        row.start_ms >= -LARGEST and max(row.end_ms, row.messages, row.size_bytes, row.uncertain) <= LARGEST
        for row in report.counts
    )


def _fields(report: Report) -> tuple[str | int | None, ...]:
    """Return the fields in the order of the schema, without the counts and the position."""
    return (
        report.id,
        report.tier.value,
        report.source,
        report.topic,
        report.partition,
        report.start_offset,
        report.end_offset,
        report.reported_at_ms,
    )


def _numbers(row: Count) -> tuple[int, ...]:
    return row.start_ms, row.end_ms, row.messages, row.size_bytes, row.uncertain


def _record_batch(found: Sequence[Report | None], partitions: pa.Array, offsets: pa.Array) -> pa.RecordBatch:
    nothing = (None,) * 8
    columns = zip(*(_fields(report) if report else nothing for report in found), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=False)]
    numbers: list[tuple[int, ...]] = []
    ends = [0]
    for report in found:
        if report:
            numbers += map(_numbers, report.counts)
        ends.append(len(numbers))
    by_field = list(zip(*numbers, strict=True)) or [()] * len(COUNT_FIELDS)
    rows = pa.StructArray.from_arrays([pa.array(each, pa.int64()) for each in by_field], COUNT_FIELDS)
    counts = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), rows).cast(pa.list_(_COUNT_TYPE))
    places = [partitions.cast(pa.int32()), offsets.cast(pa.int64())]
    return pa.RecordBatch.from_arrays([*arrays, counts, *places], schema=_ARROW_SCHEMA)
