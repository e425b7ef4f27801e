"""The client, against `skylog registry`."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from skylog.schemas.registry_client import (
    JSON,
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryClient,
    SchemaNotFoundError,
    SchemaReference,
    SchemaText,
)


def record(*fields: Mapping[str, object], name: str = "R") -> SchemaText:
    return SchemaText(json.dumps({"type": "record", "name": name, "fields": fields}))


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string"}


@pytest.fixture(scope="module")
def client(registry_url: str) -> RegistryClient:
    return RegistryClient(registry_url)


def test_what_is_registered_is_found_by_id_version_and_schema(client: RegistryClient, registry_url: str) -> None:
    first = client.register("client/a b", record(A))
    second = client.register("client/a b", record(A, {**B, "default": ""}))
    fresh = RegistryClient(registry_url)
    assert json.loads(fresh.schema_by_id(first).text)["fields"] == [A]
    assert fresh.versions("client/a b") == [1, 2]
    assert (fresh.latest("client/a b").version, fresh.latest("client/a b").id) == (2, second)
    found = fresh.lookup("client/a b", record(A))
    assert found is not None
    assert (found.version, found.id, found.subject) == (1, first, "client/a b")
    assert fresh.lookup("client/a b", record(B)) is None
    assert fresh.lookup("client/none", record(B)) is None
    assert fresh.subjects("client/a") == ["client/a b"]


def test_an_incompatible_schema_is_refused_with_the_reasons(client: RegistryClient) -> None:
    client.register("strict", record(A))
    verdict = client.compatible("strict", record(A, B))
    assert not verdict.is_compatible
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in message for message in verdict.messages)
    assert client.compatible("strict", record(A, {**B, "default": ""})).is_compatible
    assert client.compatible("without versions", record(B)).is_compatible
    assert client.config("strict") == client.config() == "BACKWARD"
    with pytest.raises(IncompatibleSchemaError):
        client.register("strict", record(A, B))


def test_errors_say_what_is_wrong(client: RegistryClient) -> None:
    with pytest.raises(SchemaNotFoundError, match="999999"):
        client.schema_by_id(999_999)
    with pytest.raises(SchemaNotFoundError, match="nowhere"):
        client.latest("nowhere")
    with pytest.raises(InvalidSchemaError):
        client.register("invalid", SchemaText('{"type": "record"}'))


def test_references_are_resolved_with_their_own(client: RegistryClient) -> None:
    client.register("inner", record(A, name="Inner"))
    middle = SchemaText(
        json.dumps({"type": "record", "name": "Middle", "fields": [{"name": "inner", "type": "Inner"}]}),
        references=(SchemaReference("Inner", "inner", 1),),
    )
    schema_id = client.register("middle", middle)
    outer = (SchemaReference("Middle", "middle", 1),)
    assert list(client.texts(outer)) == ["Inner", "Middle"]
    assert client.schema_by_id(schema_id).references == middle.references
    client.register("as-json", SchemaText('{"type": "object"}', JSON))
    assert client.latest("as-json").schema.kind == JSON
