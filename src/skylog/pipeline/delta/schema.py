"""The schema of a table: from Spark's types, and how it may grow. Delta's JSON form is Spark's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from deltalake import Schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from skylog.pipeline.delta.errors import TableSchemaError

_IMPOSSIBLE: Final = re.compile(r"[ ,;{}()\n\t=]")
_TYPES: Final = re.compile(
    r"string|long|integer|short|byte|double|float|boolean|binary|date|timestamp|timestamp_ntz|decimal\(\d+,\d+\)"
)


def check_columns(schema: StructType, partition_by: Sequence[str], uri: str) -> None:
    """Raise TableSchemaError for columns that a new table cannot have."""
    check_names(schema, uri)
    for name in partition_by:
        if name not in schema.names:
            raise TableSchemaError(
                f"{uri}: there is no column '{name}' to partition by; there are {', '.join(schema.names)}"
            )
    if partition_by and set(schema.names) <= set(partition_by):
        raise TableSchemaError(f"{uri}: the result has no columns but those that it is partitioned by; add another one")


def check_names(schema: StructType, uri: str) -> None:
    """Raise TableSchemaError if two columns have the same name."""
    known = set[str]()
    for name in schema.names:
        if name.lower() in known:
            raise TableSchemaError(f"{uri}: there are two columns '{name}'; rename one, or leave it out")
        known.add(name.lower())


def delta_schema(schema: StructType, uri: str) -> Schema:
    """Return the schema for Delta, all columns nullable. Raises TableSchemaError for what Delta cannot store."""
    return Schema.from_json(json.dumps(_nullable(schema.jsonValue(), uri)))


def spark_schema(schema: Schema) -> StructType:
    found = StructType.fromJson(json.loads(schema.to_json()))
    assert isinstance(found, StructType)
    return found


def new_columns(table: StructType, rows: StructType, uri: str) -> StructType:
    """Return the columns of `rows` that the table does not have, or whose structs have new fields.

    Raises TableSchemaError if a type would change.
    """
    check_names(rows, uri)
    known = {field.name.lower(): field for field in table.fields}
    added = StructType()
    for field in rows.fields:
        was = known.get(field.name.lower())
        if was is None:
            added.add(field)
        elif (grown := _grown(was.dataType, field.dataType, field.name, uri)) != was.dataType:
            added.add(was.name, grown)
    return added


def _grown(table: DataType, rows: DataType, column: str, uri: str) -> DataType:
    """Return the type of a column with the fields that structs of the rows have in addition."""
    if isinstance(table, StructType) and isinstance(rows, StructType):
        known = {field.name: field for field in rows.fields}
        kept = [
            StructField(was.name, _grown(was.dataType, known[was.name].dataType, f"{column}.{was.name}", uri))
            if was.name in known
            else was
            for was in table.fields
        ]
        return StructType([*kept, *(field for name, field in known.items() if name not in table.names)])
    if isinstance(table, ArrayType) and isinstance(rows, ArrayType):
        return ArrayType(_grown(table.elementType, rows.elementType, column, uri), table.containsNull)
    if isinstance(table, MapType) and isinstance(rows, MapType) and table.keyType == rows.keyType:
        value = _grown(table.valueType, rows.valueType, column, uri)
        return MapType(table.keyType, value, table.valueContainsNull)
    if (before := table.simpleString()) != (kind := rows.simpleString()):
        raise TableSchemaError(
            f"{uri}: column '{column}' is {before} and cannot become {kind}; rename the column, or write another table"
        )
    return table


def spelled(names: Iterable[str], table: StructType) -> list[str]:
    """Return the names of columns as the table spells them. Case does not distinguish columns, but files have it."""
    known = {name.lower(): name for name in table.names}
    return [known.get(name.lower(), name) for name in names]


def _nullable(kind: Any, uri: str, column: str = "") -> Any:
    if not isinstance(kind, dict):
        if not _TYPES.fullmatch(kind):
            raise TableSchemaError(f"{uri}: column '{column}' is {kind}, which a table cannot store; cast it")
        return kind
    match kind["type"]:
        case "struct":
            return {"type": "struct", "fields": [_field(each, uri, column) for each in kind["fields"]]}
        case "array":
            return {**kind, "elementType": _nullable(kind["elementType"], uri, column), "containsNull": True}
        case "map":
            parts = {part: _nullable(kind[part], uri, column) for part in ("keyType", "valueType")}
            return {**kind, **parts, "valueContainsNull": True}
    raise TableSchemaError(f"{uri}: column '{column}' is {kind['type']}, which a table cannot store; cast it")


def _field(field: Any, uri: str, column: str) -> Any:
    name = f"{column}.{field['name']}" if column else field["name"]
    if _IMPOSSIBLE.search(field["name"]):
        raise TableSchemaError(f"{uri}: column '{name}': names must not contain spaces or any of ,;{{}}()=; rename it")
    return {"name": field["name"], "type": _nullable(field["type"], uri, name), "nullable": True, "metadata": {}}
