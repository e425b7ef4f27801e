"""`valueFormat=avro`: values become columns by the schemas of a registry, and those that are none say why."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from skylog.errors import SkylogError
from skylog.schemas.registry_client import RegistryClient
from skylog.spark.reading.avro_schema import avro_schema
from skylog.spark.reading.options import read_options
from skylog.testing import BrokerProcess
from tests.registry.avro_messages import framed, produce
from tests.registry.registry_process import running_registry
from tests.spark.conftest import Topics

V1 = {"type": "record", "name": "View", "fields": [{"name": "page", "type": "string"}, {"name": "ms", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "ms", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
    ],
}
OTHER = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "bytes"}]}


@pytest.fixture(scope="module")
def registry_url(skylog_broker: BrokerProcess) -> Iterator[str]:
    with running_registry(skylog_broker.bootstrap) as registry:
        yield registry.url


@pytest.fixture
def topic() -> str:
    return f"avro-{uuid.uuid4().hex[:8]}"


def test_all_versions_of_a_topic_give_one_set_of_columns_and_poison_is_kept(
    topics: Topics, registry_url: str, topic: str
) -> None:
    client = RegistryClient(registry_url)
    subject = f"{topic}-value"
    first = framed(client, subject, V1, [{"page": "/", "ms": 1}])
    second = framed(client, subject, V2, [{"page": "/a", "ms": 2**40, "tags": [], "at": 0}])
    other = framed(client, f"{topic}-other", OTHER, [{"page": b"x"}])
    poison = [b"{}", b"\x00\x00\x0f\xff\xff", first[0][:6]]
    produce(topics.bootstrap, topic, [*first, *second, *other, None, *poison])
    options: dict[str, Any] = {"valueFormat": "avro", "schemaRegistryUrl": registry_url}
    frame = topics.read(topic, **options)
    assert frame.select("event.*").dtypes == [
        ("page", "string"),
        ("ms", "bigint"),
        ("tags", "array<string>"),
        ("at", "timestamp"),
    ]
    rows = frame.orderBy("offset").selectExpr("event.page", "event.ms", "event.tags", "_corrupt").collect()
    assert [tuple(row) for row in rows] == [
        ("/", 1, ["none"], None),
        ("/a", 2**40, [], None),
        (None, None, None, rows[2][3]),
        (None, None, None, None),
        (None, None, None, "the value does not begin with the id of a schema"),
        (None, None, None, f"schema {0xFFFFF} is not in the registry"),
        (None, None, None, rows[6][3]),
    ]
    assert "it is the record Click, and the columns are those of View" in rows[2][3]
    assert "the bytes do not match schema" in rows[6][3]
    chosen = topics.read(topic, **options, valueSchema="ms DOUBLE, more STRING").where("event IS NOT NULL")
    assert [tuple(row) for row in chosen.orderBy("offset").select("event.*").collect()[:2]] == [
        (1.0, None),
        (float(2**40), None),
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"valueFormat": "avro"}, "needs schemaRegistryUrl"),
        ({"schemaRegistryUrl": "http://127.0.0.1:1"}, "are for valueFormat=avro"),
        ({"valueFormat": "avro", "schemaRegistryUrl": "127.0.0.1"}, "is not an address such as"),
        (
            {"valueFormat": "avro", "schemaRegistryUrl": "http://127.0.0.1:1", "schemaRegistry.basic.auth.user": "a"},
            "did you mean 'basic.auth.user.info'",
        ),
        ({"valueFormat": "avro", "schemaRegistryUrl": "http://127.0.0.1:1"}, "no schema registry answered"),
        ({"valueFormat": "avro", "schemaRegistryUrl": "URL"}, "has neither a subject 'nothing-value' nor one such as"),
        ({"valueFormat": "avro", "schemaRegistryUrl": "URL", "valueSubject": "no-*"}, "has no subject 'no-*'"),
    ],
)
def test_mistakes_are_named_with_the_fix(registry_url: str, options: dict[str, str], reason: str) -> None:
    given = {name: registry_url if value == "URL" else value for name, value in options.items()}
    with pytest.raises(SkylogError, match=re.escape(reason)):
        avro_schema(read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "nothing", **given}, is_stream=False))
