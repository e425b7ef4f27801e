"""The Avro schemas of a table, with Debezium's names: PREFIX.SCHEMA.TABLE.Key, .Value and .Envelope. Pure.

Columns of the key are required. All others are optional, also those that are NOT NULL: of a deleted row, only the key
is known, and then a column may be added or dropped without breaking readers of the earlier or the later version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from skylog.capture.avro_types import avro_type
from skylog.capture.pgoutput import Column
from skylog.capture.table import CaptureError

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")
_OPTIONAL_LONG: Final = ["null", "long"]
_SOURCE: Final = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "db", "type": "string"},
        {"name": "snapshot", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "txId", "type": _OPTIONAL_LONG, "default": None},
        {"name": "lsn", "type": _OPTIONAL_LONG, "default": None},
    ],
}


def key_schema(topic: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    by_name = {column.name: column for column in columns}
    fields = [{"name": avro_name(name), "type": avro_type(by_name[name]).schema} for name in key]
    return _text(_record(topic, "Key", fields))


def row_schema(topic: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    return _text(_row(topic, columns, key))


def envelope_schema(topic: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    row = _row(topic, columns, key)
    fields: list[dict[str, Any]] = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", f"{row['namespace']}.{row['name']}"], "default": None},
        {"name": "source", "type": _SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": _OPTIONAL_LONG, "default": None},
    ]
    return _text(_record(topic, "Envelope", fields))


def avro_name(name: str) -> str:
    """Return a name that Avro allows: letters, digits and underscores, and no digit at first."""
    found = _NOT_IN_NAMES.sub("_", name)
    return f"_{found}" if found[:1].isdigit() else found


def _row(topic: str, columns: Sequence[Column], key: Sequence[str]) -> dict[str, Any]:
    fields: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for column in columns:
        name, kind = avro_name(column.name), avro_type(column).schema
        if name in fields:
            raise CaptureError(
                f"the columns {names[name]!r} and {column.name!r} of {topic} are both {name} in Avro: "
                "rename one of them, or use --format json"
            )
        names[name] = column.name
        is_required = column.name in key
        fields[name] = {"name": name, "type": kind} if is_required else _optional(name, kind)
    return _record(topic, "Value", list(fields.values()))


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _record(topic: str, name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    namespace = ".".join(avro_name(part) for part in topic.split("."))
    return {"type": "record", "name": name, "namespace": namespace, "fields": fields}


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, separators=(",", ":"))
