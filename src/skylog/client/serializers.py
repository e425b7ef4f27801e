"""Serializers and deserializers. You can use any function with the same signature instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never, Protocol, Self

import orjson

from skylog.client.errors import SerializeError
from skylog.tracing import HeaderPairs

if TYPE_CHECKING:  # with defaults, which Python 3.13 has: without a deserializer, values are bytes
    from typing_extensions import TypeVar

    ValueT = TypeVar("ValueT", default=bytes)
    ValueT_co = TypeVar("ValueT_co", default=bytes, covariant=True)
else:
    from typing import TypeVar

    ValueT = TypeVar("ValueT")
    ValueT_co = TypeVar("ValueT_co", covariant=True)

Serializer = Callable[[Never], bytes]
"""Any function of one value that returns bytes."""
Deserializer = Callable[[bytes], ValueT]


class Model(Protocol):
    """A pydantic model, or any class that reads and writes JSON by the same methods."""

    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> Self:
        """Return the object that a JSON document describes."""

    def model_dump_json(self) -> str:
        """Return the object as JSON."""


ModelT = TypeVar("ModelT", bound=Model)


def serialize(value: object) -> bytes:
    """Keep bytes, encode text as UTF-8 and everything else as JSON. The default of `Producer`."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return to_json(value)


def check_header_names(headers: HeaderPairs) -> None:
    """Raise UnicodeEncodeError or SerializeError for a name that cannot be sent.

    librdkafka's Python binding ends the process at a name that is not UTF-8, and cuts a name at a zero character.
    """
    for name in headers if isinstance(headers, dict) else [pair[0] for pair in headers]:
        if b"\0" in name.encode():
            raise SerializeError(f"the header {name!r} cannot be sent: its name has a zero character")


def to_json(value: object) -> bytes:
    """Encode as JSON. Supports pydantic models, and dataclasses, datetimes, UUIDs and enums, as orjson does."""
    try:
        return orjson.dumps(value, _model_fields, orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise SerializeError(
            f"a {type(value).__name__} cannot be sent: {error}; "
            "send bytes, text or JSON types, or give the producer a serializer"
        ) from error


def from_json(data: bytes) -> Any:
    """Parse JSON."""
    return orjson.loads(data)


def to_text(value: str) -> bytes:
    """Encode as UTF-8."""
    return value.encode()


def from_text(data: bytes) -> str:
    """Decode UTF-8."""
    return data.decode()


def to_model(model: type[ModelT]) -> Callable[[ModelT], bytes]:
    """Return a serializer for objects of a pydantic model, which rejects all others.

    The default serializer accepts models too, among all other types.
    """

    def to_bytes(value: ModelT) -> bytes:
        if not isinstance(value, model):
            raise SerializeError(f"a {type(value).__name__} cannot be sent: this producer takes {model.__name__} only")
        return value.model_dump_json().encode()

    return to_bytes


def from_model(model: type[ModelT]) -> Callable[[bytes], ModelT]:
    """Return a deserializer that validates JSON with a pydantic model: `deserializer=from_model(Order)`."""
    return model.model_validate_json


def _model_fields(value: Any) -> object:
    """Convert what orjson does not support: pydantic models, also inside of other values."""
    dump = getattr(type(value), "model_dump", None)
    if dump is None:
        raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
    return dump(value, mode="json")
