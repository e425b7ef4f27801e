"""The columns of Spark's own Kafka source, for Spark and for Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa

EVENT: Final = "event"
CORRUPT: Final = "_corrupt"
HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)


def record_schema(*, with_headers: bool) -> StructType:
    """Return the schema of records."""
    return StructType([*_COLUMNS, StructField("headers", HEADERS)] if with_headers else [*_COLUMNS])


def value_schema(fields: str, *, with_headers: bool) -> str:
    """Return the schema of records with parsed values. It is DDL, because only Spark's JVM can parse `fields`."""
    plain = ", ".join(
        f"`{each.name}` {each.dataType.simpleString()}" for each in record_schema(with_headers=with_headers)
    )
    return f"{plain}, `{EVENT}` STRUCT<{fields}>, `{CORRUPT}` STRING"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for `schema`."""
    from pyspark.sql.pandas.types import to_arrow_schema  # a large import that only executors need

    return to_arrow_schema(schema, timezone="UTC")
