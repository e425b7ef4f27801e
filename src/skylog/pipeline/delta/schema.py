"""The schema of a table: from Spark's types, and how it may grow. Delta's JSON form is Spark's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from deltalake import Schema
from pyspark.sql.types import StructType

from skylog.pipeline.delta.errors import TableSchemaError

_IMPOSSIBLE: Final = re.compile(r"[ ,;{}()\n\t=]")
_TYPES: Final = re.compile(
    r"string|long|integer|short|byte|double|float|boolean|binary|date|timestamp|timestamp_ntz|decimal\(\d+,\d+\)"
)


def delta_schema(schema: StructType, uri: str) -> Schema:
    """Return the schema for Delta, all columns nullable. Raises TableSchemaError for what Delta cannot store."""
    return Schema.from_json(json.dumps(_nullable(schema.jsonValue(), uri)))


def spark_schema(schema: Schema) -> StructType:
    found = StructType.fromJson(json.loads(schema.to_json()))
    assert isinstance(found, StructType)
    return found


def new_columns(table: StructType, rows: StructType, uri: str) -> StructType:
    """Return the columns of `rows` that the table does not have. Raises TableSchemaError if a type would change."""
    known = {field.name.lower(): field for field in table.fields}
    added = StructType()
    for field in rows.fields:
        was = known.get(field.name.lower())
        if was is None:
            added.add(field)
        elif (before := was.dataType.simpleString()) != (kind := field.dataType.simpleString()):
            raise TableSchemaError(
                f"{uri}: column '{field.name}' is {before} and cannot become {kind}; rename the column, or write "
                "another table"
            )
    return added


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
