"""`skylog serve` with a registry and a console: pages of schemas, and messages that are decoded by them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import struct_pb2, timestamp_pb2

from skylog.client import Admin
from skylog.testing import BrokerProcess

AVRO = '{"type":"record","name":"R","fields":[{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"at","type":"long"},{"name":"n","type":"int"}]}'
JSON_SCHEMA = '{"title": "T", "type": "object", "properties": {"a": {"type": "string"}}}'
LOGIN = ("ada", "secret")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """Its registry has a user: the console logs in."""
    options = ["--registry-port", "0", "--registry-user", LOGIN[0], "--registry-password", LOGIN[1]]
    with BrokerProcess(console=True, options=options) as broker:
        yield broker


@pytest.fixture(scope="module")
def registry_url(broker: BrokerProcess) -> str:
    [url] = re.findall(r"^registry at (http://\S+)$", broker.stderr(), re.MULTILINE)
    return str(url)


@pytest.fixture(scope="module")
def schemas(registry_url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry_url, "basic.auth.user.info": ":".join(LOGIN)})


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess, schemas: SchemaRegistryClient) -> str:
    """A topic with a message of each format, one without, and one that does not fit its schema."""
    Admin(broker.bootstrap).create_topic("typed", 1)
    context = SerializationContext("typed", MessageField.VALUE)
    settings = {"use.deprecated.format": False, "auto.register.schemas": True}
    struct = struct_pb2.Struct()
    struct.update({"a": 1})
    schemas.set_compatibility("typed-value", "NONE")
    avro = AvroSerializer(schemas, AVRO)({"at": 1_700_000_000_000}, context)
    assert avro is not None
    values = [
        avro,
        JSONSerializer(JSON_SCHEMA, schemas)({"a": "é"}, context),
        ProtobufSerializer(timestamp_pb2.Timestamp, schemas, settings)(timestamp_pb2.Timestamp(seconds=7), context),
        ProtobufSerializer(struct_pb2.Struct, schemas, settings)(struct, context),
        b"\0\0\0\xff\xffplain",
        avro[:5],
    ]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce("typed", value, partition=0)
    assert producer.flush(60) == 0
    return "typed"


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> httpx.Client:
    return httpx.Client(base_url=broker.console_url, timeout=60)


def test_the_registry_of_serve_needs_its_login(registry_url: str) -> None:
    assert httpx.get(f"{registry_url}/subjects", timeout=60).status_code == 401
    assert httpx.get(f"{registry_url}/subjects", auth=LOGIN, timeout=60).status_code == 200


def test_messages_are_decoded_by_their_schemas(console: httpx.Client, topic: str) -> None:
    rows = console.get(f"/topics/{topic}/messages.json?order=oldest").json()["messages"]
    found = [row.get("value_decoded") for row in sorted(rows, key=lambda each: int(each["offset"]))]
    assert [each and (each["kind"], each["value"]) for each in found[:5]] == [
        ("AVRO", {"at": "2023-11-14T22:13:20+00:00"}),
        ("JSON", {"a": "é"}),
        ("PROTOBUF", "1970-01-01T00:00:07Z"),
        ("PROTOBUF", {"a": 1.0}),
        None,
    ]
    assert "not a message of schema" in found[5]["problem"]
    page = console.get(f"/topics/{topic}/messages", headers={"accept": "text/html"}).text
    assert "2023-11-14T22:13:20" in page
    assert f'href="/schemas?id={found[0]["schema_id"]}"' in page
    one = console.get(f"/topics/{topic}/messages/0/1", headers={"accept": "text/html"}).text
    assert "JSON" in one
    assert "value_decoded" in console.get(f"/topics/{topic}/messages/0/1.json").json()["message"]


def test_subjects_and_versions_are_shown_and_compared(
    console: httpx.Client, registry_url: str, schemas: SchemaRegistryClient
) -> None:
    name = "shop/orders-value"
    post = f"{registry_url}/subjects/shop%2Forders-value/versions"
    first = httpx.post(post, json={"schema": AVRO}, auth=LOGIN, timeout=60).json()["id"]
    httpx.put(f"{registry_url}/config/shop%2Forders-value", json={"compatibility": "NONE"}, auth=LOGIN, timeout=60)
    assert httpx.post(post, json={"schema": WIDER}, auth=LOGIN, timeout=60).status_code == 200
    listed = console.get("/schemas.json?q=ORDERS").json()
    assert [(row["subject"], row["version"], row["kind"]) for row in listed["subjects"]] == [(name, 2, "AVRO")]
    assert name in [row["subject"] for row in console.get(f"/schemas.json?id={first}").json()["subjects"]]
    shown = console.get(f"/schemas/{name}.json").json()
    assert (shown["version"], shown["versions"], shown["level"]) == (2, [1, 2], "NONE")
    assert json.loads(shown["schema"]) == json.loads(WIDER)
    assert any(line.startswith("+") for line in shown["comparison"]["diff"])
    assert shown["comparison"]["backward"]
    assert shown["comparison"]["forward"] == []
    html = console.get(f"/schemas/{name}?version=1&against=2", headers={"accept": "text/html"}).text
    assert "Compared with version 2" in html
    assert ">Schemas</a>" in html


def test_an_unknown_subject_is_a_problem_in_words(console: httpx.Client, topic: str) -> None:
    response = console.get("/schemas/none.json")
    assert response.status_code == 404
    assert "Subject 'none' not found" in response.json()["error"]
