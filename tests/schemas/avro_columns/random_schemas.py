"""Random Avro schemas with values for them, and what a column has for a value that fastavro has read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Any, NamedTuple

from hypothesis import strategies as st

Convert = Callable[[Any], Any]


class Kind(NamedTuple):
    """A schema, values for it, and the conversion of what fastavro reads to what a column has."""

    schema: Any
    values: st.SearchStrategy[Any]
    column: Convert


def same(value: Any) -> Any:
    return value


names = count()
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
CENTS = st.integers(-(10**9) + 1, 10**9 - 1).map(lambda unscaled: Decimal(unscaled).scaleb(-2))
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def _named(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": f"n{next(names)}", **more}


def leaves() -> st.SearchStrategy[Kind]:
    return st.sampled_from(
        [
            lambda: Kind("boolean", st.booleans(), same),
            lambda: Kind("int", st.integers(-(2**31), 2**31 - 1), same),
            lambda: Kind("long", LONGS, same),
            lambda: Kind("float", st.floats(width=32, allow_nan=False), same),
            lambda: Kind("double", st.floats(allow_nan=False), same),
            lambda: Kind("bytes", st.binary(max_size=9), same),
            lambda: Kind("string", TEXTS, same),
            lambda: Kind(_named("enum", symbols=["A", "B", "C"]), st.sampled_from("ABC"), same),
            lambda: Kind(_named("fixed", size=3), st.binary(min_size=3, max_size=3), same),
            lambda: Kind({"type": "int", "logicalType": "date"}, st.dates(date(1800, 1, 1), date(2300, 1, 1)), same),
            lambda: Kind({"type": "long", "logicalType": "timestamp-micros"}, MOMENTS, same),
            lambda: Kind(
                {"type": "long", "logicalType": "timestamp-millis"},
                MOMENTS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
                same,
            ),
            lambda: Kind({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, CENTS, same),
            lambda: Kind(_named("fixed", size=8, logicalType="decimal", precision=9, scale=2), CENTS, same),
        ]
    ).map(lambda make: make())


def nullable(kind: Kind) -> Kind:
    return Kind(["null", kind.schema], st.none() | kind.values, lambda v: None if v is None else kind.column(v))


def array(kind: Kind) -> Kind:
    return Kind(
        {"type": "array", "items": kind.schema},
        st.lists(kind.values, max_size=4),
        lambda found: [kind.column(each) for each in found],
    )


def mapping(kind: Kind) -> Kind:
    return Kind(
        {"type": "map", "values": kind.schema},
        st.dictionaries(TEXTS, kind.values, max_size=3),
        lambda found: [(key, kind.column(each)) for key, each in found.items()],
    )


def record(kinds: list[Kind]) -> Kind:
    fields = [{"name": f"f{number}", "type": kind.schema} for number, kind in enumerate(kinds)]
    return Kind(
        _named("record", fields=fields),
        st.fixed_dictionaries({f"f{number}": kind.values for number, kind in enumerate(kinds)}),
        lambda found: {f"f{number}": kind.column(found[f"f{number}"]) for number, kind in enumerate(kinds)},
    )


def members() -> st.SearchStrategy[Kind]:
    """Unions whose branches no type holds together, told apart by their Python types."""
    choices: list[tuple[type, Any, st.SearchStrategy[Any]]] = [
        (bool, "boolean", st.booleans()),
        (int, "long", LONGS),
        (str, "string", TEXTS),
        (bytes, "bytes", st.binary(max_size=5)),
        (list, {"type": "array", "items": "string"}, st.lists(TEXTS, max_size=2)),
    ]

    def union(chosen: list[tuple[type, Any, st.SearchStrategy[Any]]]) -> Kind:
        def column(found: Any) -> Any:
            if found is None:
                return None
            kinds = [kind for kind, _, _ in chosen]
            return {f"member{n}": found if type(found) is kind else None for n, kind in enumerate(kinds)}

        return Kind(["null", *(each for _, each, _ in chosen)], st.one_of(st.none(), *(v for *_, v in chosen)), column)

    return st.lists(st.sampled_from(choices), min_size=2, max_size=4, unique_by=lambda each: each[1].__str__()).map(
        union
    )


def kinds() -> st.SearchStrategy[Kind]:
    return st.recursive(
        leaves() | leaves().map(nullable) | members(),
        lambda inner: st.one_of(
            inner.map(array), inner.map(mapping), st.lists(inner, min_size=1, max_size=3).map(record)
        ).flatmap(lambda kind: st.sampled_from([kind, nullable(kind)])),
        max_leaves=5,
    )


def records() -> st.SearchStrategy[Kind]:
    return st.lists(kinds(), min_size=1, max_size=5).map(record)
