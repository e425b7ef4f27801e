"""confluent-kafka's registry client and its serializers, unchanged, against a real registry and broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import struct_pb2, timestamp_pb2

from skylog.client import Admin
from skylog.testing import BrokerProcess
from tests.registry.registry_process import AVRO_INT, Api, RegistryProcess

JSON_SCHEMA = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
"properties": {"id": {"type": "integer"}, "item": {"type": "string"}}, "required": ["id"]}"""


@pytest.fixture(scope="module")
def client(registry: RegistryProcess, api: Api) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def round_trip(
    broker: BrokerProcess,
    topic: str,
    value: Any,
    serialize: Callable[[Any, SerializationContext], bytes | None],
    deserialize: Callable[[bytes, SerializationContext], Any],
) -> Any:
    """Send a value through the broker, and return what a consumer reads."""
    context = SerializationContext(topic, MessageField.VALUE)
    Admin(broker.bootstrap).create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, serialize(value, context))
    assert producer.flush(60) == 0
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        [message] = consumer.consume(1, 60)
        data = message.value()
        assert data is not None
        assert data[:1] == b"\0"
        return deserialize(data, context)
    finally:
        consumer.close()


def test_avro_goes_through_the_log(broker: BrokerProcess, client: SchemaRegistryClient, subject: str) -> None:
    value = {"a": 7}
    found = round_trip(broker, subject, value, AvroSerializer(client, AVRO_INT), AvroDeserializer(client))
    assert found == value
    assert client.get_latest_version(f"{subject}-value").version == 1


def test_json_goes_through_the_log(broker: BrokerProcess, client: SchemaRegistryClient, subject: str) -> None:
    value = {"id": 7, "item": "tea"}
    serializer = JSONSerializer(JSON_SCHEMA, client)
    assert (
        round_trip(broker, subject, value, serializer, JSONDeserializer(JSON_SCHEMA, schema_registry_client=client))
        == value
    )
    assert client.get_latest_version(f"{subject}-value").schema.schema_type == "JSON"


def test_protobuf_goes_through_the_log(broker: BrokerProcess, client: SchemaRegistryClient, subject: str) -> None:
    value = timestamp_pb2.Timestamp(seconds=7, nanos=5)
    settings = {"use.deprecated.format": False}
    serializer = ProtobufSerializer(timestamp_pb2.Timestamp, client, settings)
    deserializer = ProtobufDeserializer(timestamp_pb2.Timestamp, settings)
    assert round_trip(broker, subject, value, serializer, deserializer) == value
    latest = client.get_latest_version(f"{subject}-value")
    assert latest.schema.schema_type == "PROTOBUF"
    assert client.register_schema(f"{subject}-value", latest.schema) == latest.schema_id


def test_a_protobuf_that_imports_another_registers_both(client: SchemaRegistryClient, subject: str) -> None:
    settings = {"use.deprecated.format": False}
    serializer = ProtobufSerializer(struct_pb2.Struct, client, settings)
    value = struct_pb2.Struct()
    value.update({"a": [1, "b"]})
    context = SerializationContext(subject, MessageField.VALUE)
    data = serializer(value, context)
    assert data is not None
    assert ProtobufDeserializer(struct_pb2.Struct, settings)(data, context) == value


def test_the_client_does_everything_it_can(client: SchemaRegistryClient, subject: str) -> None:
    schema = Schema(AVRO_INT, "AVRO")
    schema_id = client.register_schema(subject, schema)
    assert client.get_schema(schema_id).schema_str == AVRO_INT
    assert client.lookup_schema(subject, schema).version == 1
    assert subject in client.get_subjects()
    assert client.get_versions(subject) == [1]
    assert client.get_version(subject, 1).schema_id == schema_id
    assert "AVRO" in client.get_schema_types()
    assert subject in client.get_subjects_by_schema_id(schema_id)
    assert any(each.subject == subject for each in client.get_schema_versions(schema_id))
    assert client.test_compatibility(subject, schema)
    assert client.test_compatibility_all_versions(subject, schema)
    client.set_compatibility(subject, "FULL")
    assert client.get_compatibility(subject) == "FULL"
    assert "FULL" in str(client.get_config(subject).compatibility_level)
    client.delete_config(subject)
    assert client.update_mode(subject, "READONLY") == "READONLY"
    assert client.get_mode(subject) == "READONLY"
    assert client.delete_mode(subject) == "READONLY"
    assert client.get_global_mode() == "READWRITE"
    reference = SchemaReference("R", subject, 1)
    user = '{"type":"record","name":"U","fields":[{"name":"r","type":"R"}]}'
    other = client.register_schema(f"{subject}-user", Schema(user, "AVRO", [reference]))
    assert client.get_referenced_by(subject, 1) == [other]
    assert client.delete_version(f"{subject}-user", 1) == 1
    assert client.delete_subject(subject) == [1]
    assert client.delete_subject(subject, permanent=True) == [1]
    assert "." in client.get_contexts()


def test_an_incompatible_schema_is_an_error_of_the_client(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, Schema(AVRO_INT, "AVRO"))
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema(subject, Schema(AVRO_INT.replace('"int"', '"string"'), "AVRO"))
    assert (caught.value.http_status_code, caught.value.error_code) == (409, 409)
    with pytest.raises(SchemaRegistryError) as caught:
        client.get_latest_version(f"{subject}-none")
    assert caught.value.error_code == 40401
