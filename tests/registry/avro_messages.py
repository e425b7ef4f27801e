"""Produces Avro messages with schemas of a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro
from confluent_kafka import Producer

from skylog.schemas.framing import frame
from skylog.schemas.registry_client import RegistryClient, SchemaText


def framed(client: RegistryClient, subject: str, schema: Mapping[str, Any], values: Iterable[Any]) -> list[bytes]:
    """Register the schema, and return the values as messages."""
    schema_id = client.register(subject, SchemaText(json.dumps(schema)))
    parsed = fastavro.parse_schema(dict(schema))
    found = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        found.append(frame(schema_id, out.getvalue()))
    return found


def produce(bootstrap: str, topic: str, values: Iterable[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()
