"""The faster parser: what it takes, it takes as the parser of events does."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skylog.pipeline.event_parser import FIELDS, REASON, parse, parse_schema
from skylog.pipeline.jobs.land import ENVELOPE
from skylog.pipeline.plain_events import PlainEvents
from tests.pipeline.test_event_parser import records
from tests.proof import proof
from tests.spark.chance import chance

SCHEMA = "id STRING, n INT, big BIGINT, ratio DOUBLE, ok BOOLEAN, user STRUCT<id: STRING, at: DOUBLE>, more STRING"
NAMES = ("id", "n", "big", "ratio", "ok", "user", "more", "other", "ID", "")
PLAIN = (
    b'{"id":"a","n":1,"big":-9223372036854775808,"ratio":1,"ok":true,"user":{"id":"b","at":0.1},"more":{"x":[1,"y"]}}',
    b' {"id" : "\xc3\xa9\\u00e9\\ud83d\\ude00", "n" : null, "user" : {}, "other" : [1.5, {}]}\r\n',
    b'{"id":7,"more":true,"ratio":1e-300,"big":9223372036854775807}',
    b'{"id":"a \\"quote\\" and a \\\\"}',
    b'{"more":["\xc3\xa9"],"user":null,"ratio":0.0}',
    b"{}",
)
OTHERS = (
    *(None, b"", b"null", b"[]", b"{", b'{"id":"a"} b', b'{"id":"\xff"}', b'{"id":"a"}{"id":"b"}', b"\xef\xbb\xbf{}"),
    *(b'{"n":"1"}', b'{"n":1.0}', b'{"n":2147483648}', b'{"ok":1}', b'{"user":1}', b'{"user":{"at":"x"}}'),
    *(b'{"ratio":true}', b'{"ratio":"NaN"}', b'{"ratio":1e999}', b'{"id":1.10}', b'{"more":{"a":1e5}}'),
    *(b'{"n":"x","n":1}', b'{"more":{"a":1,"a":2}}', b'{"id":"\\u0022","id":"b","other":"\\u0022"}'),
    *(b'{"id":"\\ud800"}', b'{"more":{"a":"\\u0001"}}', b'{"more":["\xf0\x9f\x98\x80"]}'),
    *(b'{"other":' + b"9" * 1200 + b"}", b'{"other":' + b"[" * 900 + b"]" * 900 + b"}"),
)


def parsed_by_spark(spark: SparkSession, values: Iterable[bytes | None], ddl: str) -> list[Any]:
    """The fields of each value as a dict, or the reason why it does not parse."""
    rows = parse(records(spark, *values), parse_schema(ddl)).orderBy("offset").collect()
    return [row[FIELDS].asDict(recursive=True) if row[REASON] is None else row[REASON] for row in rows]


def compared(spark: SparkSession, values: list[bytes | None], ddl: str) -> list[bool]:
    """Return which values are plain. Fail if Spark has other fields for one of those."""
    parser = PlainEvents.of(parse_schema(ddl))
    assert parser is not None
    is_plain, columns = parser.parse(pa.array(values, pa.binary()))
    found = pa.table(columns, names=parser.schema.names).to_pylist()
    expected = parsed_by_spark(spark, values, ddl)
    plain = [number for number, is_one in enumerate(is_plain) if is_one]
    for number, fields in zip(plain, found, strict=True):
        assert repr(fields) == repr(expected[number]), values[number]
    return [bool(each) for each in is_plain]


def test_plain_values_have_the_fields_that_spark_gives_them(spark: SparkSession) -> None:
    found = compared(spark, [*PLAIN, *OTHERS], SCHEMA)
    assert found == [True] * len(PLAIN) + [False] * len(OTHERS)


def test_random_values_are_parsed_as_by_spark(spark: SparkSession) -> None:
    drawn = chance()
    values: list[bytes | None] = [text(drawn).encode("utf-8", "surrogatepass") for _ in range(proof(4000, 1000))]
    for ddl in (SCHEMA, ENVELOPE):
        found = compared(spark, values, ddl)
        assert len(values) / 20 < sum(found) < len(values)


@pytest.mark.parametrize(
    "ddl", ["at TIMESTAMP", "names ARRAY<STRING>", "a STRUCT<b: MAP<STRING, STRING>>", "d DECIMAL(9,2)"]
)
def test_other_types_are_left_to_spark(spark: SparkSession, ddl: str) -> None:
    assert PlainEvents.of(parse_schema(ddl)) is None


def text(drawn: random.Random) -> str:
    """A JSON object, or almost one, as some writer writes it."""
    found = _value(drawn, drawn.randrange(4), is_object=True)
    if drawn.random() < 0.1:
        at = drawn.randrange(len(found))
        found = found[:at] + drawn.choice(('"', "\\", "}", "{", ",", " ", "0", "-", "\x01", "\ud800")) + found[at:]
    return found


def _value(drawn: random.Random, depth: int, *, is_object: bool = False) -> str:
    gap = drawn.choice(("", "", "", " ", "\n"))
    if is_object or (depth and drawn.random() < 0.3):
        names = drawn.choices((*NAMES, "event", "timestamp", "attributes"), k=drawn.randrange(6))
        if drawn.random() < 0.9:
            names = list(dict.fromkeys(names))
        fields = [f"{_text(drawn, name)}{gap}:{gap}{_fitting(drawn, name, depth)}" for name in names]
        return "{" + f",{gap}".join(fields) + "}"
    if depth and drawn.random() < 0.3:
        return f"[{f',{gap}'.join(_value(drawn, depth - 1) for _ in range(drawn.randrange(4)))}]"
    if drawn.random() < 0.5:
        return _text(
            drawn, drawn.choice(("", "a", "page", 'say "x"', "é\U0001f600", "\\", "/", "\x1f\n", "\x7f", "\u2028"))
        )
    return drawn.choice(("true", "false", "null", _number(drawn)))


def _fitting(drawn: random.Random, name: str, depth: int) -> str:
    """A value that usually fits the schema."""
    if drawn.random() < 0.15:
        return _value(drawn, max(depth - 1, 0))
    if name in ("n", "big"):
        return str(drawn.choice((0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, drawn.getrandbits(31))))
    if name in ("ratio", "at", "timestamp"):
        return _number(drawn)
    if name == "ok":
        return drawn.choice(("true", "false"))
    return _value(drawn, max(depth, 1), is_object=True) if name == "user" else _value(drawn, max(depth - 1, 0))


def _number(drawn: random.Random) -> str:
    return drawn.choice(
        (
            *(
                "0",
                "-0",
                "-0.0",
                "0.10",
                "1e5",
                "1E-7",
                "1e400",
                "12345678901234567890",
                "1.7976931348623157e308",
                "5e-324",
            ),
            *(
                str(drawn.getrandbits(70)),
                repr(drawn.random()),
                repr(drawn.random() * 10**12),
                str(drawn.randrange(-9, 9)),
            ),
        )
    )


def _text(drawn: random.Random, value: str) -> str:
    """A text as JSON, escaped in one of several ways."""
    way = drawn.randrange(4)
    if way == 0:
        return json.dumps(value)
    if way == 1 and value:
        return '"' + "".join(f"\\u{ord(each):04x}" if ord(each) < 0x10000 else each for each in value) + '"'
    return json.dumps(value, ensure_ascii=False)
