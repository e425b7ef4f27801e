"""Python types of fields as Avro types: their schema, and the conversion of values, which checks them."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, localcontext
from typing import Any, Final, NamedTuple
from uuid import UUID

from skylog.errors import SkylogError

Convert = Callable[[Any], Any]
"""Converts a value for an Avro writer. Raises MisfitError."""

_LONG: Final = 1 << 63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EventClassError(SkylogError):
    """A class that no Avro schema can describe. The message names the field."""


class MisfitError(SkylogError):
    """A value that does not fit its field. The message names the field, what it takes, and what it got."""

    def __init__(self, expected: str, got: object) -> None:
        self.path = ""
        self.expected = expected
        self.got = got
        super().__init__(self._text())

    def inside(self, name: str) -> MisfitError:
        """Return the error with the name of the field around it."""
        self.path = f"{name}.{self.path}" if self.path else name
        self.args = (self._text(),)
        return self

    def _text(self) -> str:
        try:
            shown = repr(self.got)
        except Exception as error:  # the application's code, or an int of thousands of digits
            shown = f"that cannot be shown: {type(error).__name__}"
        got = f"{type(self.got).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"
        return f"field '{self.path}' takes {self.expected}, got {got}"


class AvroType(NamedTuple):
    """A type of a field. `name` is for errors, and for the branch of a union."""

    schema: Any
    convert: Convert
    name: str
    branch: str


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise MisfitError("a bool", value)


def _long(value: Any) -> int:
    if type(value) is int and -_LONG <= value < _LONG:  # `type`, because a bool is an int
        return value
    if isinstance(value, int) and not isinstance(value, bool) and -_LONG <= value < _LONG:
        return int(value)
    raise MisfitError("an int of at most 64 bits", value)


def _double(value: Any) -> float:
    if isinstance(value, (float, int)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise MisfitError("a float", value) from None  # an int of hundreds of digits
    raise MisfitError("a float", value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise MisfitError("a str", value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise MisfitError("bytes", value)


def _moment(value: Any) -> int:
    """Return microseconds since 1970. A time without a zone is local."""
    if not isinstance(value, datetime):
        raise MisfitError("a datetime", value)
    since = (value if value.tzinfo is not None else value.astimezone()) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _day(value: Any) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH.toordinal()
    raise MisfitError("a date", value)


def _time_of_day(value: Any) -> int:
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    raise MisfitError("a time", value)


def _uuid(value: Any) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise MisfitError("a UUID", value)


PLAIN: Final[Mapping[Any, AvroType]] = {
    bool: AvroType("boolean", _boolean, "a bool", "boolean"),
    int: AvroType("long", _long, "an int of at most 64 bits", "long"),
    float: AvroType("double", _double, "a float", "double"),
    str: AvroType("string", _text, "a str", "string"),
    bytes: AvroType("bytes", _bytes, "bytes", "bytes"),
    datetime: AvroType({"type": "long", "logicalType": "timestamp-micros"}, _moment, "a datetime", "long"),
    date: AvroType({"type": "int", "logicalType": "date"}, _day, "a date", "int"),
    time: AvroType({"type": "long", "logicalType": "time-micros"}, _time_of_day, "a time", "long"),
    UUID: AvroType({"type": "string", "logicalType": "uuid"}, _uuid, "a UUID", "string"),
}


def decimal_type(digits: int, places: int) -> AvroType:
    expected = f"a Decimal of at most {digits} digits, {places} of them decimal places"

    def convert(value: Any) -> bytes:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise MisfitError(expected, value)
        with localcontext(prec=digits + places + abs(value.adjusted()) + 2):
            unscaled = value.scaleb(places)
            number = int(unscaled)
            if number != unscaled or abs(number) >= 10**digits:
                raise MisfitError(expected, value)
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)

    schema = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": places}
    return AvroType(schema, convert, expected, "bytes")


def literal_type(values: tuple[Any, ...]) -> AvroType:
    expected = f"one of {', '.join(map(repr, values))}"
    if not all(isinstance(each, str) for each in values):
        raise EventClassError(f"a Literal of {expected} has no Avro type; use texts")

    def convert(value: Any) -> str:
        if isinstance(value, str) and value in values:
            return value
        raise MisfitError(expected, value)

    return AvroType("string", convert, expected, "string")


def array_type(item: AvroType) -> AvroType:
    def convert(value: Any) -> list[Any]:
        if isinstance(value, (str, bytes)) or not isinstance(value, abc.Collection):
            raise MisfitError(f"a list of {item.name}", value)
        found = []
        for number, each in enumerate(value):
            try:
                found.append(item.convert(each))
            except MisfitError as error:
                raise error.inside(str(number)) from None
        return found

    return AvroType({"type": "array", "items": item.schema}, convert, f"a list of {item.name}", "array")


def map_type(item: AvroType) -> AvroType:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise MisfitError(f"a dict of {item.name}", value)
        found = {}
        for key, each in value.items():
            try:
                found[_text(key)] = item.convert(each)
            except MisfitError as error:
                raise error.inside(str(key)) from None
        return found

    return AvroType({"type": "map", "values": item.schema}, convert, f"a dict of {item.name}", "map")
