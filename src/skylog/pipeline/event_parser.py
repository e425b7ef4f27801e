"""The parser of events: JSON values as columns. All jobs parse in this way.

    events(records)      a row for every record that parses, with the fields of the event as columns
    unparsed(records)    a row for every record that does not, with the reason

Every record is in exactly one of the two. Values are JSON objects, parsed by Spark's `from_json`. Fields that are not
in the schema are ignored, and missing fields are null. A record with a field of another type is unparsed. A STRING
takes any value, as its JSON text. Text between the end of the first object and another `}` is ignored.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import StringType, StructType

from skylog.errors import ConfigError
from skylog.spark.schema import CORRUPT, EVENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

ENVELOPE: Final = (
    "id STRING, event STRING, timestamp DOUBLE, user STRUCT<id: STRING, created_at: DOUBLE>, "
    "attributes MAP<STRING, STRING>, server STRING, application STRING"
)
"""The schema of events from `skylog.events`. Attributes are text: JSON text for objects and arrays."""

FIELDS: Final = "_fields"
"""The column of `parse` with the fields."""
REASON: Final = "_reason"
"""The column of `parse` with the reason why a record does not parse, NULL if it does."""
RECORD: Final = "record"

_CORRUPT: Final = "_corrupt"
_TEXT: Final = "_text"
_RESERVED: Final = frozenset({RECORD, FIELDS, REASON, _CORRUPT, _TEXT})
_SHOWN: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
_JSON_SPACE: Final = " \t\r\n"
_JSON: Final = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


class SchemaError(ConfigError):
    """The schema of events is invalid. The message names the mistake."""


def parse_schema(ddl: str) -> StructType:
    """Parse the DDL of the events' fields. Raises SchemaError for invalid DDL and for reserved names."""
    try:
        schema = StructType.fromDDL(ddl)  # uses the JVM, so it requires a session
    except PySparkException as error:
        raise SchemaError(f"schema {ddl}: {str(error).strip().partition(chr(10))[0]}") from error
    assert isinstance(schema, StructType)
    taken = [name for name in schema.names if name.lower() in _RESERVED]
    if taken:
        raise SchemaError(f"column '{taken[0]}' is reserved; remove it from the schema")
    return schema


def parse(records: DataFrame, schema: StructType) -> DataFrame:
    """Return `records` with two more columns: FIELDS, a struct of the schema or NULL if unparsed, and REASON."""
    with_corrupt = StructType([*schema.fields]).add(_CORRUPT, StringType())
    text = records.withColumn(_TEXT, F.col("value").cast("string"))
    rows = text.withColumn(FIELDS, F.from_json(_TEXT, with_corrupt, _JSON)).withColumn(REASON, _reason())
    kept = F.struct(*(F.col(f"{FIELDS}.`{name}`") for name in schema.names))
    return rows.withColumn(FIELDS, F.when(F.col(REASON).isNull(), kept)).drop(_TEXT)


def parse_decoded(records: DataFrame, schema: StructType) -> DataFrame:
    """As `parse`, for records whose values the data source has decoded, as it does for Avro."""
    reason = F.when(F.col("value").isNull(), "no value").otherwise(F.col(CORRUPT))
    fields = F.when(F.col(EVENT).isNotNull(), F.col(EVENT).cast(schema))
    return records.withColumn(FIELDS, fields).withColumn(REASON, reason)


def events(records: DataFrame, schema: str = ENVELOPE, observation: Observation | None = None) -> DataFrame:
    """Return the fields of the events, and `key`, `topic`, `partition`, `offset` and `timestamp` of their records.

    `timestamp` is the record's, which is when the event happened. If a field of the schema has one of these names, the
    record's is in the struct `record`, which has all columns of the record. For `observation` see `only_parsed`.
    """
    kind = parse_schema(schema)
    rows = only_parsed(parse(records, kind), observation)
    hidden = {"timestamp"} if schema == ENVELOPE else set[str]()
    fields = [name for name in kind.names if name not in hidden]
    taken = {name.lower() for name in fields}
    own = [name for name in _SHOWN if name in records.columns and name not in taken]
    return rows.select(*(F.col(f"{FIELDS}.`{name}`") for name in fields), *own, record_struct(records))


def unparsed(records: DataFrame, schema: str = ENVELOPE) -> DataFrame:
    """Return value (as bytes and as text), reason, and topic, partition, offset, timestamp and key of the records."""
    rows = parse(records, parse_schema(schema)).where(F.col(REASON).isNotNull())
    return rows.select("value", text_of_value(), F.col(REASON).alias("reason"), *_SHOWN[:5])


def all_fields(records: DataFrame, schema: str = ENVELOPE) -> DataFrame:
    """Return the fields of all records, NULL for those that do not parse, and the struct `record`."""
    return parse(records, parse_schema(schema)).select(record_struct(records), f"{FIELDS}.*")


def only_parsed(parsed: DataFrame, observation: Observation | None = None) -> DataFrame:
    """Return the rows of `parse` that parse. An observation counts all `records` and the `unparsed` ones.

    There is always one: without it, Spark pushes the filter below the parsing, and parses twice.
    """
    counted = parsed.observe(
        observation or f"events-{uuid.uuid4().hex}",
        F.count(F.lit(1)).alias("records"),
        F.count(REASON).alias("unparsed"),
    )
    return counted.where(F.col(REASON).isNull())


def text_of_value() -> Column:
    return F.make_valid_utf8(F.col("value").cast("string")).alias("text")


def record_struct(records: DataFrame) -> Column:
    return F.struct(*(F.col(f"`{name}`") for name in records.columns)).alias(RECORD)


def _reason() -> Column:
    is_object = _is_object(F.col(_TEXT)) | _is_object(F.trim(_TEXT, F.lit(_JSON_SPACE)))  # seldom trims, which copies
    return (
        F.when(F.col("value").isNull(), "no value")
        .when(~F.is_valid_utf8(_TEXT), "not UTF-8")
        .when(~is_object, "not a JSON object")
        .when(F.col(FIELDS).isNull() | F.col(f"{FIELDS}.{_CORRUPT}").isNotNull(), "not JSON of the schema")
    )


def _is_object(text: Column) -> Column:
    return F.startswith(text, F.lit("{")) & F.endswith(text, F.lit("}"))
