"""Messages made from the declarations: each field of a version with values of its kind, the others at their default."""

from __future__ import annotations

from functools import cache
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from skylog.errors import ErrorCode
from skylog.protocol.apis import API_SPECS
from skylog.protocol.fields import Array, Blob, FieldSpec, Id, Kind, Scalar, Structure, Text, field_specs, zero_of
from skylog.protocol.schema import ZERO_UUID, Message

MESSAGE_VERSIONS = [
    (cls, version)
    for api in API_SPECS.values()
    for cls in (api.request, api.response)
    for version in range(cls.versions.low, cls.versions.high + 1)
]
"""Every message in every version that can be coded."""


def ids_of(case: tuple[type[Message], int]) -> str:
    return f"{case[0].__name__}-v{case[1]}"


_INTEGERS = {
    code: st.integers(low, high) | st.sampled_from([low, high, 0])
    for code, low, high in [
        ("b", -(2**7), 2**7 - 1),
        ("h", -(2**15), 2**15 - 1),
        ("H", 0, 2**16 - 1),
        ("i", -(2**31), 2**31 - 1),
        ("I", 0, 2**32 - 1),
        ("q", -(2**63), 2**63 - 1),
    ]
}
# 126 and 127 bytes are the last compact length of one byte and the first of two.
_TEXTS = st.text(max_size=4) | st.sampled_from(["", "topic", "é" * 63, "x" * 127, "Ω漢😀" * 40])
_BLOBS = st.binary(max_size=6) | st.sampled_from([b"", bytes(126), bytes(range(256)) * 2])

# kio turns some integers into richer types, which cannot hold every value that the wire can.
_RICH_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from(
        sorted({int(code) for code in ErrorCode} & {int(code.value) for code in KioErrorCode})
    ),
    "log_append_time_ms": st.just(-1) | st.integers(0, 2**31).map(lambda seconds: seconds * 1000),
    "retention_time_ms": st.integers(-1, 2**40),
    "session_lifetime_ms": st.integers(0, 2**40),
    "transaction_start_time_ms": st.integers(0, 2**31).map(lambda seconds: seconds * 1000),
}
_RICH_FIELDS["topic_config_error_code"] = _RICH_FIELDS["partition_error_code"] = _RICH_FIELDS["error_code"]


@cache
def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Objects of `cls` that `version` can represent."""
    fields = {spec.name: _values(spec, version) for spec in field_specs(cls) if version in spec.versions}
    absent = {spec.name: st.just(spec.default) for spec in field_specs(cls) if version not in spec.versions}
    return st.builds(cls, **fields, **absent)


def _values(spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    values = _RICH_FIELDS[spec.name] if spec.name in _RICH_FIELDS else _of_kind(spec.kind, version)
    if isinstance(spec.kind, Structure) and spec.tag is not None:
        empty = spec.kind.cls()
        return st.none() | values.filter(lambda value: value != empty)
    return st.none() | values if version in spec.nullable else values


def _of_kind(kind: Kind, version: int) -> st.SearchStrategy[Any]:
    match kind:
        case Scalar(code="?"):
            return st.booleans()
        case Scalar(code="d"):
            return st.floats(allow_nan=False)
        case Scalar():
            return _INTEGERS[kind.code]
        case Text():
            return _TEXTS
        case Blob():
            return _BLOBS
        case Id():
            return st.uuids() | st.just(ZERO_UUID)
        case Array():
            return st.lists(_of_kind(kind.item, version), max_size=2)
        case Structure():
            return messages(kind.cls, version)


def full_message(cls: type, version: int) -> Any:
    """One message with something in every field of `version`: two items in each array, nothing null."""
    fields = field_specs(cls)
    present = {spec.name: _full_value(spec.kind, version) for spec in fields if version in spec.versions}
    return cls(**present, **{spec.name: spec.default for spec in fields if version not in spec.versions})


def _full_value(kind: Kind, version: int) -> Any:
    match kind:
        case Scalar(code="?"):
            return True
        case Scalar():
            return 3
        case Text():
            return "name"
        case Blob():
            return b"data"
        case Id():
            return UUID(int=2**127 + 5)
        case Array():
            return [_full_value(kind.item, version) for _ in range(2)]
        case Structure():
            return full_message(kind.cls, version)


def smallest_message(cls: type, version: int) -> Any:
    """One message whose structures take the fewest bytes; its top-level arrays have three items, the others none."""
    message = _smallest(cls, version)
    for spec in field_specs(cls):
        if isinstance(spec.kind, Array) and spec.tag is None and version in spec.versions:
            item = spec.kind.item
            smallest = _smallest(item.cls, version) if isinstance(item, Structure) else zero_of(item)
            setattr(message, spec.name, [smallest] * 3)
    return message


def _smallest(cls: type, version: int) -> Any:
    fields = field_specs(cls)
    zeros = {spec.name: zero_of(spec.kind) for spec in fields if version in spec.versions and spec.tag is None}
    return cls(**{spec.name: spec.default for spec in fields} | zeros)
