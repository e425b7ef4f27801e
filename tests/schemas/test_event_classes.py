"""Schemas of classes: what fastavro writes with them is what the object has, and what does not fit is named."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import fastavro
import pytest
from pydantic import BaseModel, Field

from skylog.schemas.event_classes import ClassSchemas
from skylog.schemas.field_types import EventClassError, MisfitError


class Colour(Enum):
    RED = 1
    GREEN = 2


class State(StrEnum):
    IN_PROGRESS = "in-progress"


@dataclass
class Place:
    name: str
    inside: Place | None = None


@dataclass
class Everything:
    flag: bool
    number: int
    ratio: float
    text: str
    raw: bytes
    at: datetime
    day: date
    hour: time
    price: Annotated[Decimal, Field(max_digits=10, decimal_places=2)]
    key: UUID
    colour: Colour
    again: Colour | None
    kind: Literal["a", "b"]
    tags: list[str]
    counts: dict[str, int]
    place: Place
    either: int | str | None
    places: list[Place] = field(default_factory=list)
    state: State = State.IN_PROGRESS
    note: str | None = None
    level: int | None = 3
    total: Decimal = Decimal("1.5")


VALUES: dict[str, Any] = {
    "flag": True,
    "number": -(2**63),
    "ratio": 1,
    "text": "ü",
    "raw": b"\xff",
    "at": datetime(2024, 5, 1, 12, 0, 0, 5, tzinfo=UTC),
    "day": date(1969, 12, 31),
    "hour": time(1, 2, 3, 4),
    "price": Decimal("-12.30"),
    "key": UUID(int=5),
    "colour": Colour.RED,
    "again": Colour.GREEN,
    "kind": "a",
    "tags": ["x"],
    "counts": {"y": 1},
    "place": Place("home", Place("town")),
    "either": "z",
}


def written(kind: type, value: object) -> Any:
    found = ClassSchemas("test").record(kind)
    parsed = fastavro.parse_schema(found.schema)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, found.convert(value))
    return fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed, None)


def test_an_object_is_read_as_it_was() -> None:
    assert written(Everything, Everything(**VALUES)) == {
        **VALUES,
        "ratio": 1.0,
        "colour": "RED",
        "again": "GREEN",
        "place": {"name": "home", "inside": {"name": "town", "inside": None}},
        "places": [],
        "state": "IN_PROGRESS",
        "note": None,
        "level": 3,
        "total": Decimal("1.5"),
    }


def test_defaults_are_those_of_the_class_and_what_may_be_none_is_none() -> None:
    schema = ClassSchemas("test").record(Everything).schema
    defaults = {each["name"]: each["default"] for each in schema["fields"] if "default" in each}
    assert defaults == {
        "again": None,
        "either": None,
        "places": [],
        "state": "IN_PROGRESS",
        "note": None,
        "level": 3,
        "total": (1_500_000_000).to_bytes(4, "big").decode("latin-1"),
    }
    types = {each["name"]: each["type"] for each in schema["fields"]}
    assert (types["note"], types["level"]) == (["null", "string"], ["long", "null"])
    assert types["price"] == {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


class Customer(BaseModel):
    name: str
    address: Address
    credit: Decimal = Field(max_digits=6, decimal_places=1)
    since: datetime | None = None


def test_a_pydantic_model_is_a_record_too() -> None:
    found = written(Customer, Customer(name="Ann", address=Address(street="High", number=1), credit=Decimal("9.5")))
    assert found == {
        "name": "Ann",
        "address": {"street": "High", "number": 1},
        "credit": Decimal("9.5"),
        "since": None,
    }


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("flag", 1, "field 'flag' takes a bool, got int 1"),
        ("number", True, "field 'number' takes an int of at most 64 bits, got bool True"),
        ("number", 2**63, "at most 64 bits"),
        ("ratio", "1", "field 'ratio' takes a float, got str '1'"),
        ("text", None, "field 'text' takes a str, got NoneType None"),
        ("at", date(2024, 1, 1), "takes a datetime, got date"),
        ("day", datetime(2024, 1, 1, tzinfo=UTC), "takes a date, got datetime"),
        ("price", Decimal("1.234"), "at most 10 digits, 2 of them decimal places, got Decimal"),
        ("price", Decimal("123456789.00"), "at most 10 digits"),
        ("price", Decimal("NaN"), "at most 10 digits"),
        ("key", "5", "takes a UUID"),
        ("colour", "RED", r"takes a Colour \(one of RED, GREEN\), got str 'RED'"),
        ("kind", "c", "takes one of 'a', 'b', got str 'c'"),
        ("tags", "x", "field 'tags' takes a list of a str, got str"),
        ("tags", ["x", 2], r"field 'tags\.1' takes a str, got int 2"),
        ("counts", {"y": "z"}, r"field 'counts\.y' takes an int"),
        ("counts", {1: 2}, r"field 'counts\.1' takes a str"),
        ("place", Place("a", Place(None)), r"field 'place\.inside\.name' takes a str, got NoneType"),  # type: ignore[arg-type]
        ("either", 1.5, "takes an int of at most 64 bits or a str or None, got float 1.5"),
        ("note", 5, "takes a str or None, got int 5"),
    ],
)
def test_what_does_not_fit_is_refused_with_field_type_and_value(name: str, value: object, reason: str) -> None:
    convert = ClassSchemas("test").record(Everything).convert
    with pytest.raises(MisfitError, match=reason):
        convert(Everything(**{**VALUES, name: value}))


@dataclass
class Unknown:
    thing: complex


@dataclass
class Loose:
    things: list  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("kind", "reason"), [(Unknown, "Unknown.thing: complex has no Avro type"), (Loose, "Loose.things: list")]
)
def test_a_class_without_a_schema_is_refused_with_the_field(kind: type, reason: str) -> None:
    with pytest.raises(EventClassError, match=reason):
        ClassSchemas("test").record(kind)
