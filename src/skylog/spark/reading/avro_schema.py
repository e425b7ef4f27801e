"""The columns of Avro messages: from a registry, and between Spark's types and those of the decoder.

The defaults of fields travel to the executors as metadata of Spark's fields, as do the names of the records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from skylog.schemas.avro_columns import Shape, ShapeError, parse_writer, shape_of_versions
from skylog.schemas.avro_columns.shape import LOCAL_TIME, UTC_TIME
from skylog.schemas.avro_columns.writer_types import Record, WriterType, WriterTypeError
from skylog.schemas.registry_client import AVRO, RegistryClient, SchemaText
from skylog.spark.errors import OptionError
from skylog.spark.reading.options import ReadOptions
from skylog.spark.schema import CORRUPT, EVENT, record_schema

DEFAULT: Final = "avro.default"
RECORDS: Final = "avro.records"

_RECORD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_LEAVES: Final[Mapping[pa.DataType, DataType]] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    UTC_TIME: TimestampType(),
    LOCAL_TIME: TimestampNTZType(),
}


@lru_cache(maxsize=8)
def registry_client(settings: tuple[tuple[str, str], ...]) -> RegistryClient:
    """Return a client, which the tasks of a worker share, with its cache."""
    return RegistryClient(dict(settings))


def client_of(options: ReadOptions) -> RegistryClient:
    return registry_client(tuple(sorted(options.registry.items())))


def avro_schema(options: ReadOptions) -> StructType:
    """Return the columns of the records, with those of all versions of the subjects. Raises OptionError."""
    registry = client_of(options)
    versions: list[WriterType] = []
    for subject in _subjects(options, registry):
        versions += [_parsed(registry, registry.version(subject, each).schema) for each in registry.versions(subject)]
    try:
        shape = shape_of_versions(versions)
    except (ShapeError, WriterTypeError) as error:
        raise OptionError(str(error)) from error
    records = sorted({_last_name(each) for each in versions if isinstance(each, Record)})
    fields = record_schema(with_headers=options.include_headers).fields
    event = StructField(EVENT, spark_type(shape), metadata={RECORDS: records})
    return StructType([*fields, event, StructField(CORRUPT, StringType())])


def find_schema(registry: RegistryClient, records: Sequence[str], schema_id: int) -> WriterType:
    """Return the schema of an id. Raises SchemaNotFoundError, and WriterTypeError for a record without columns."""
    found = _parsed(registry, registry.schema_by_id(schema_id))
    if not isinstance(found, Record):
        raise WriterTypeError("it is no record")
    if records and _last_name(found) not in records:
        raise WriterTypeError(f"it is the record {found.name}, and the columns are those of {', '.join(records)}")
    return found


def spark_type(shape: Shape) -> DataType:
    """Return Spark's type of a shape."""
    kind = shape.arrow
    if pa.types.is_struct(kind):
        return StructType(
            [
                StructField(
                    name,
                    spark_type(part),
                    metadata={DEFAULT: json.dumps(shape.defaults[name])} if name in shape.defaults else None,
                )
                for name, part in shape.parts.items()
            ]
        )
    if pa.types.is_list(kind):
        return ArrayType(spark_type(shape.parts[""]))
    if pa.types.is_map(kind):
        return MapType(StringType(), spark_type(shape.parts[""]))
    return DecimalType(kind.precision, kind.scale) if pa.types.is_decimal(kind) else _LEAVES[kind]


def shape_of_column(kind: DataType, arrow: pa.DataType) -> Shape:
    """Return the shape of a column: the Arrow type that Spark expects, with the defaults from Spark's metadata."""
    if isinstance(kind, StructType):
        parts = {each.name: shape_of_column(each.dataType, arrow.field(each.name).type) for each in kind}
        defaults: dict[str, Any] = {
            each.name: json.loads(each.metadata[DEFAULT]) for each in kind if DEFAULT in (each.metadata or {})
        }
        return Shape(arrow, parts, defaults)
    if isinstance(kind, ArrayType):
        return Shape(arrow, {"": shape_of_column(kind.elementType, arrow.value_type)})
    if isinstance(kind, MapType):
        return Shape(arrow, {"": shape_of_column(kind.valueType, arrow.item_type)})
    return Shape(arrow)


def _parsed(registry: RegistryClient, schema: SchemaText) -> WriterType:
    if schema.kind != AVRO:
        raise WriterTypeError(f"it is a schema of {schema.kind}, and valueFormat=avro reads {AVRO} only")
    return parse_writer(schema.text, registry.texts(schema.references))


def _last_name(kind: Record) -> str:
    return kind.name.rpartition(".")[2]


def _subjects(options: ReadOptions, registry: RegistryClient) -> list[str]:
    """Return the subjects that the columns come from."""
    existing = registry.subjects()
    if options.value_subject is not None:
        wanted = [each.strip() for each in options.value_subject.split(",") if each.strip()]
        found = [name for each in wanted for name in _matching(each, existing)]
    else:
        found = [name for topic in _topics(options) for name in _of_topic(topic, existing)]
    return list(dict.fromkeys(found))


def _matching(wanted: str, existing: Sequence[str]) -> list[str]:
    begin = wanted.removesuffix("*")
    found = [name for name in existing if (name.startswith(begin) if wanted.endswith("*") else name == wanted)]
    if not found:
        raise OptionError(f"valueSubject: the registry has no subject '{wanted}'; `skylog schemas list` shows them")
    return found


def _of_topic(topic: str, existing: Sequence[str]) -> list[str]:
    """Return the subjects of a topic by Confluent's names: TOPIC-value, or TOPIC-RECORD for topics of many records."""
    if f"{topic}-value" in existing:
        return [f"{topic}-value"]
    found = [
        name
        for name in existing
        if name.startswith(f"{topic}-") and _RECORD_NAME.fullmatch(name.removeprefix(f"{topic}-"))
    ]
    if not found:
        raise OptionError(
            f"the registry has neither a subject '{topic}-value' nor one such as '{topic}-RECORD'; name the subjects "
            "of the topic with valueSubject, or give the fields as valueSchema"
        )
    return found


def _topics(options: ReadOptions) -> list[str]:
    if options.subscribe is not None:
        return [topic.strip() for topic in options.subscribe.split(",") if topic.strip()]
    if options.assign is not None:
        return list(json.loads(options.assign))
    raise OptionError("valueFormat=avro with subscribePattern needs valueSubject or valueSchema: topics are not known")
