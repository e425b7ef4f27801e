"""Two codecs of the same messages that are not ours: `kio` and `kafka-python`.

Each function gives the bytes of one of our messages as that library writes them, from its own schemas; the names of the
fields must be the same on both sides, apart from the units that kio moves into its types.
"""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import classify_field

from skylog.protocol.fields import FieldSpec, field_specs
from skylog.protocol.schema import Message


def present_fields(cls: type, version: int) -> list[FieldSpec]:
    return [spec for spec in field_specs(cls) if version in spec.versions]


def kio_class(cls: type[Message], version: int) -> Any:
    """kio's class for a message; raises KioIndexError if it has none."""
    load: Any = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
    return load(cls.api_key, version)


def written_by_kio(message: Message, version: int) -> bytes:
    kio_cls = kio_class(type(message), version)
    out = io.BytesIO()
    entity_writer(kio_cls)(out, _to_kio(message, kio_cls, version))
    return out.getvalue()


def _to_kio(message: Any, kio_cls: Any, version: int) -> Any:
    values = {}
    theirs = dataclasses.fields(kio_cls)
    for spec, their in zip(present_fields(type(message), version), theirs, strict=True):
        assert their.name in (spec.name, spec.name.removesuffix("_ms"))
        value = getattr(message, spec.name)
        if spec.tag is not None and value == spec.default:
            continue
        values[their.name] = _kio_value(value, their, version)
    return kio_cls(**values)


def _kio_value(value: Any, their: Any, version: int) -> Any:
    if value is None:
        return None
    their_class = classify_field(their)
    if dataclasses.is_dataclass(their_class.type_):
        if their_class.is_array:
            return tuple(_to_kio(item, their_class.type_, version) for item in value)
        return _to_kio(value, their_class.type_, version)
    match their.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(value / 1000, UTC)
    return tuple(value) if their_class.is_array else value


_SHORT_NAMES = {
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
}


def kafka_python_class(cls: type[Message]) -> Any:
    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        found = getattr(getattr(kafka.protocol, package), cls.__name__, None)
        if found is not None:
            return found
    raise LookupError(cls.__name__)


def written_by_kafka_python(message: Message, version: int) -> bytes:
    theirs = kafka_python_class(type(message))
    values = _to_kafka_python(message, theirs._struct, version)
    return bytes(theirs(version=version, **values).encode(version=version))


def _to_kafka_python(message: Any, struct: Any, version: int) -> dict[str, Any]:
    ours = present_fields(type(message), version)
    theirs = [field for field in struct.fields.values() if field.for_version_q(version)]
    values = {}
    for spec, their in zip(ours, theirs, strict=True):
        assert their.name in (spec.name, _SHORT_NAMES.get(spec.name))
        value = getattr(message, spec.name)
        if spec.tag is None or value != spec.default:
            values[their.name] = _kafka_python_value(value, their, version)
    return values


def _kafka_python_value(value: Any, field: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct_array():
        return [field.data_class(version=version, **_to_kafka_python(item, field, version)) for item in value]
    if field.is_struct():
        return field.data_class(version=version, **_to_kafka_python(value, field, version))
    if field.type_str == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return value
