"""Messages as declarations: `@message` and `@struct` turn a class body into a codec for every version.

    @struct
    class DeleteRecordsTopic:
        name: str = field("0+")
        partitions: list[DeleteRecordsPartition] = field("0+")

    @message(api_key=21, versions="0-2", flexible="2+")
    class DeleteRecordsRequest(Message):
        topics: list[DeleteRecordsTopic] = field("0+")
        timeout_ms: Int32 = field("0+")

The classes are ordinary dataclasses (slots, keyword arguments only, compared by value) and type checkers see them as
such. Reader and writer of a version are generated on first use, and cached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.constructor import make_init
from skylog.protocol.fields import (
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    UInt16,
    UInt32,
    Versions,
    field,
)
from skylog.protocol.primitives import ZERO_UUID, Buffer
from skylog.protocol.reader import make_reader, reader_source
from skylog.protocol.writer import EncodedItems, make_writer, writer_source

__all__ = [
    "ZERO_UUID",
    "Buffer",
    "EncodedItems",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Records",
    "UInt16",
    "UInt32",
    "field",
    "message",
    "source_of",
    "struct",
]

T = TypeVar("T")
M = TypeVar("M", bound="Message")


class Message:
    """A request or response body in all its versions.

    Most code uses `read` and `write`. Code that handles many messages of one version gets the functions themselves
    from `reader` and `writer` once.
    """

    __slots__ = ()

    api_key: ClassVar[int]
    versions: ClassVar[Versions]
    flexible: ClassVar[Versions]
    _readers: ClassVar[dict[int, Callable[..., Any]]]
    _writers: ClassVar[dict[int, Callable[..., Any]]]

    @classmethod
    def read(cls, buf: Buffer, version: int, pos: int = 0) -> tuple[Self, int]:
        """Read the message at `pos`; return it and the position after it.

        Raises MalformedRequestError for invalid bytes. The caller decides about bytes after the message; like Kafka,
        skylog accepts bytes after a request body. `Records` fields are views into `buf`, which must not change while
        they are used.
        """
        reader = cls._readers.get(version) or cls.reader(version)
        result: tuple[Self, int] = reader(buf, pos)
        return result

    def write(self, version: int) -> bytes:
        """Encode the body in `version`."""
        out = bytearray()
        self.write_into(out, version)
        return bytes(out)

    def write_into(self, out: bytearray, version: int) -> None:
        """Append the body in `version` to `out`."""
        writer = self._writers.get(version) or self.writer(version)
        writer(self, out)

    @classmethod
    def reader(cls, version: int) -> Callable[[Buffer, int], tuple[Self, int]]:
        """Return the function behind `read`: `(buf, pos) -> (message, pos)`."""
        reader = cls._readers.get(version)
        if reader is None:
            reader = make_reader(cls, cls._check(version), version in cls.flexible)
            cls._readers[version] = reader
        return reader

    @classmethod
    def writer(cls, version: int) -> Callable[[Self, bytearray], None]:
        """Return the function behind `write_into`: `(message, out)`."""
        writer = cls._writers.get(version)
        if writer is None:
            writer = make_writer(cls, cls._check(version), version in cls.flexible)
            cls._writers[version] = writer
        return writer

    @classmethod
    def item_encoder(cls, item: type[T], version: int) -> Callable[[T], bytes]:
        """Return a function that encodes one `item` of this message, for a list of `EncodedItems`."""
        writer = make_writer(item, cls._check(version), version in cls.flexible)

        def encode(value: T) -> bytes:
            out = bytearray()
            writer(value, out)
            return bytes(out)

        return encode

    @classmethod
    def _check(cls, version: int) -> int:
        if version not in cls.versions:
            reason = f"{cls.__name__} version {version} is outside {cls.versions}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
        return version


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Declare a structure inside a message."""
    return _dataclass(cls)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(*, api_key: int, versions: str, flexible: str) -> Callable[[type[M]], type[M]]:
    """Declare a request or response: its API, the supported versions, the versions with compact types."""

    def declare(cls: type[M]) -> type[M]:
        declared = _dataclass(cls)
        declared.api_key = api_key
        declared.versions = Versions.parse(versions)
        declared.flexible = Versions.parse(flexible)
        declared._readers = {}
        declared._writers = {}
        return declared

    return declare


def _dataclass(cls: type[T]) -> type[T]:
    """Create a dataclass with shared methods, which `dataclasses` would compile for each of the 200 classes."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise it is generated from the signature
    declared: Any = dataclasses.dataclass(slots=True, kw_only=True, eq=False, repr=False, init=False)(cls)
    declared.__eq__, declared.__hash__, declared.__repr__ = _equals, None, _text
    declared.__init__ = _lazy_init(declared)
    return cast(type[T], declared)


def _lazy_init(cls: Any) -> Callable[..., None]:
    """Return a constructor that is compiled when it is first called: a broker uses few of the classes."""

    def __init__(self: Any, **values: Any) -> None:  # noqa: N807  # its name is in the errors for wrong arguments
        if cls.__init__ is __init__:
            cls.__init__ = make_init(cls)
        cls.__init__(self, **values)

    return __init__


def _values(instance: Any) -> list[Any]:
    return [getattr(instance, name) for name in instance.__slots__]


def _equals(self: Any, other: Any) -> object:
    if self.__class__ is not other.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _text(self: Any) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in zip(self.__slots__, _values(self), strict=True))
    return f"{self.__class__.__qualname__}({shown})"


def source_of(cls: type[Message], version: int) -> tuple[str, str]:
    """Return the generated source of reader and writer, for inspection."""
    flexible = version in cls.flexible
    return reader_source(cls, version, flexible), writer_source(cls, version, flexible)
