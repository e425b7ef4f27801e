"""The REST API against a real registry and broker: what is answered, and the codes of errors."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.registry.registry_process import AVRO_INT, Api

WIDER = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


def test_a_schema_has_one_id_under_all_subjects(api: Api, subject: str) -> None:
    first = api.register(subject)
    assert api.register(subject) == first
    assert api.register(f"{subject}-2") == first
    assert api.register(subject, WIDER) > first
    assert api.get(f"/subjects/{subject}/versions") == [1, 2]
    assert api.get(f"/schemas/ids/{first}") == {"schema": AVRO_INT}
    assert api.get(f"/schemas/ids/{first}/subjects") == sorted([subject, f"{subject}-2"])
    assert {"subject": subject, "version": 1} in api.get(f"/schemas/ids/{first}/versions")


def test_notation_makes_no_other_schema(api: Api, subject: str) -> None:
    spaced = json.dumps(json.loads(AVRO_INT), indent=2)
    assert api.register(subject, spaced) == api.register(subject)
    assert api.post(f"/subjects/{subject}", {"schema": spaced})["version"] == 1


def test_a_version_is_shown_by_number_and_as_the_latest(api: Api, subject: str) -> None:
    schema_id = api.register(subject)
    shown = {"subject": subject, "version": 1, "id": schema_id, "schema": AVRO_INT}
    for version in ("1", "latest", "-1"):
        assert api.get(f"/subjects/{subject}/versions/{version}") == shown
    assert api.get(f"/subjects/{subject}/versions/1/schema") == json.loads(AVRO_INT)
    assert api.get(f"/schemas/ids/{schema_id}/schema") == json.loads(AVRO_INT)
    assert shown in api.get(f"/schemas?subjectPrefix={subject}")
    assert api.post(f"/subjects/{subject}", {"schema": AVRO_INT}) == shown


def test_subjects_are_listed_by_prefix_and_in_pages(api: Api, subject: str) -> None:
    names = [f"{subject}-{number}" for number in range(4)]
    for name in names:
        api.register(name)
    api.delete(f"/subjects/{names[0]}")
    prefix = f"/subjects?subjectPrefix={subject}"
    assert api.get(prefix) == names[1:]
    assert api.get(f"{prefix}&deleted=true") == names
    assert api.get(f"{prefix}&deletedOnly=true") == names[:1]
    assert api.get(f"{prefix}&offset=1&limit=1") == names[2:3]
    assert set(names[1:]) <= set(api.get("/subjects"))


def test_a_subject_may_have_a_slash_and_other_characters(api: Api, subject: str) -> None:
    name = f"{subject}/ü %2F"
    encoded = f"{subject}%2F%C3%BC%20%252F"
    api.register(encoded)
    assert name in api.get(f"/subjects?subjectPrefix={subject}")
    assert api.get(f"/subjects/{encoded}/versions/1")["subject"] == name


def test_versions_are_deleted_softly_and_then_for_good(api: Api, subject: str) -> None:
    first = api.register(subject)
    api.register(subject, WIDER)
    assert api.delete(f"/subjects/{subject}/versions/1") == 1
    assert api.get(f"/subjects/{subject}/versions") == [2]
    assert api.get(f"/subjects/{subject}/versions?deleted=true") == [1, 2]
    assert api.get(f"/subjects/{subject}/versions?deletedOnly=true") == [1]
    assert api.get(f"/schemas/ids/{first}")["schema"] == AVRO_INT
    assert api.fails("POST", f"/subjects/{subject}", {"schema": AVRO_INT}) == 40403
    assert api.post(f"/subjects/{subject}?deleted=true", {"schema": AVRO_INT})["version"] == 1
    assert api.delete(f"/subjects/{subject}/versions/1?permanent=true") == 1
    assert api.fails("GET", f"/subjects/{subject}/versions/1?deleted=true") == 40402
    assert api.delete(f"/subjects/{subject}") == [2]
    assert api.delete(f"/subjects/{subject}?permanent=true") == [2]
    assert api.fails("GET", f"/subjects/{subject}/versions?deleted=true") == 40401


def test_a_schema_that_is_registered_again_keeps_its_id(api: Api, subject: str) -> None:
    first = api.register(subject)
    api.delete(f"/subjects/{subject}")
    assert api.register(subject) == first
    assert api.get(f"/subjects/{subject}/versions") == [2]


def test_configs_are_inherited(api: Api, subject: str) -> None:
    assert api.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert api.get(f"/config/{subject}?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert api.put(f"/config/{subject}", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert api.get(f"/config/{subject}") == {"compatibilityLevel": "FULL"}
    api.put(f"/config/{subject}", {"normalize": True})
    assert api.get(f"/config/{subject}") == {"compatibilityLevel": "FULL", "normalize": True}
    assert api.delete(f"/config/{subject}")["compatibilityLevel"] == "FULL"
    assert api.fails("GET", f"/config/{subject}") == 40408


def test_the_level_of_a_subject_decides_what_is_compatible(api: Api, subject: str) -> None:
    api.register(subject)
    path = f"/compatibility/subjects/{subject}/versions"
    assert api.post(f"{path}/latest", {"schema": WIDER}) == {"is_compatible": True}
    verdict = api.post(f"{path}/latest?verbose=true", {"schema": OTHER})
    assert not verdict["is_compatible"]
    assert any("TYPE_MISMATCH" in each for each in verdict["messages"])
    assert not api.post(path, {"schema": OTHER})["is_compatible"]
    assert api.fails("POST", f"/subjects/{subject}/versions", {"schema": OTHER}) == 409
    api.put(f"/config/{subject}", {"compatibility": "NONE"})
    assert api.post(f"{path}/1", {"schema": OTHER}) == {"is_compatible": True}
    api.register(subject, OTHER)


def test_a_transitive_level_checks_all_versions(api: Api, subject: str) -> None:
    schemas = [
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
        '{"type":"record","name":"R","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"string","default":""}]}',
    ]
    for each in schemas[:2]:
        api.register(subject, each)
    path = f"/compatibility/subjects/{subject}/versions"
    assert api.post(path, {"schema": schemas[2]})["is_compatible"]
    api.put(f"/config/{subject}", {"compatibility": "BACKWARD_TRANSITIVE"})
    verdict = api.post(f"{path}?verbose=true", {"schema": schemas[2]})
    assert not verdict["is_compatible"]
    assert "{oldSchemaVersion: 1}" in verdict["messages"]


def test_modes_forbid_registrations_and_imports_choose_ids(api: Api, subject: str) -> None:
    assert api.get("/mode") == {"mode": "READWRITE"}
    assert api.fails("GET", f"/mode/{subject}") == 40409
    assert api.get(f"/mode/{subject}?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert api.put(f"/mode/{subject}", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert api.fails("POST", f"/subjects/{subject}/versions", {"schema": AVRO_INT}) == 42205
    assert api.put(f"/mode/{subject}", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    text = f'{{"type":"enum","name":"{subject.replace("-", "_")}","symbols":["A"]}}'
    assert api.register(subject, text, id=4711, version=3) == 4711
    assert api.get(f"/subjects/{subject}/versions") == [3]
    assert api.fails("POST", f"/subjects/{subject}/versions", {"schema": AVRO_INT, "id": 4711, "version": 4}) == 42205
    assert api.delete(f"/mode/{subject}") == {"mode": "IMPORT"}
    assert api.register(f"{subject}-next", text.replace('"A"', '"B"')) > 4711
    assert api.fails("PUT", f"/mode/{subject}", {"mode": "IMPORT"}) == 42205
    assert api.put(f"/mode/{subject}?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}


def test_references_are_resolved_and_protected(api: Api, subject: str) -> None:
    base = '{"type":"record","name":"Base","namespace":"x","fields":[{"name":"a","type":"int"}]}'
    user = '{"type":"record","name":"User","namespace":"x","fields":[{"name":"base","type":"x.Base"}]}'
    api.register(f"{subject}-base", base)
    references = [{"name": "x.Base", "subject": f"{subject}-base", "version": 1}]
    assert api.fails("POST", f"/subjects/{subject}/versions", {"schema": user}) == 42201
    schema_id = api.register(subject, user, references=references)
    assert api.get(f"/subjects/{subject}/versions/1")["references"] == references
    assert api.get(f"/schemas/ids/{schema_id}")["references"] == references
    assert api.get(f"/subjects/{subject}-base/versions/1/referencedby") == [schema_id]
    assert api.fails("DELETE", f"/subjects/{subject}-base/versions/1") == 42206
    missing = [{"name": "x.Base", "subject": f"{subject}-none", "version": 1}]
    assert api.fails("POST", f"/subjects/{subject}/versions", {"schema": user, "references": missing}) == 42201


def test_contexts_have_their_own_ids(api: Api, subject: str) -> None:
    context = f".c{subject[2:]}"
    here = api.register(subject)
    there = api.register(f":{context}:{subject}", WIDER)
    assert there == 1
    assert api.get(f"/schemas/ids/1?subject=:{context}:")["schema"] == WIDER
    assert context in api.get("/contexts")
    assert api.get(f"/contexts/{context}/subjects") == [f":{context}:{subject}"]
    assert api.get(f"/contexts/:{context}:/subjects/{subject}/versions/1")["schema"] == WIDER
    assert api.get(f"/subjects/{subject}/versions/1")["id"] == here
    api.put(f"/contexts/{context}/config", {"compatibility": "NONE"})
    assert api.get(f"/config/:{context}:{subject}?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}


def test_normalized_schemas_are_the_same(api: Api, subject: str) -> None:
    plain = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":"int","aliases":["b","a"]}]}'
    other = '{"type":"record","name":"n.R","fields":[{"name":"f","type":"int","aliases":["a","b"]}]}'
    first = api.post(f"/subjects/{subject}/versions?normalize=true", {"schema": plain})["id"]
    assert api.post(f"/subjects/{subject}/versions?normalize=true", {"schema": other})["id"] == first
    assert api.post(f"/subjects/{subject}?normalize=true", {"schema": other})["id"] == first


def test_the_server_tells_what_it_is(api: Api) -> None:
    assert api.get("/") == {}
    assert api.client.head("/").status_code == 200
    assert set(api.get("/schemas/types")) == {"AVRO", "JSON", "PROTOBUF"}
    assert api.get("/v1/metadata/id")["scope"]["clusters"]["kafka-cluster"] == api.get("/v1/metadata/id")["id"]
    assert api.get("/v1/metadata/version")["version"]
    text = api.client.get("/metrics").text
    assert "skylog_registry_is_writer 1" in text
    assert 'skylog_registry_requests_total{method="GET",path="/v1/metadata/version",status="200"}' in text


SCHEMA = {"schema": AVRO_INT}


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/subjects/none/versions", None, 40401),
        ("GET", "/subjects/none/versions/1", None, 40401),
        ("POST", "/subjects/none", SCHEMA, 40401),
        ("DELETE", "/subjects/none", None, 40401),
        ("DELETE", "/subjects/none/versions/1", None, 40401),
        ("GET", "/subjects/codes/versions/7", None, 40402),
        ("DELETE", "/subjects/codes/versions/7", None, 40402),
        ("POST", "/compatibility/subjects/codes/versions/7", SCHEMA, 40402),
        ("POST", "/subjects/codes", {"schema": '"bytes"'}, 40403),
        ("GET", "/schemas/ids/99999", None, 40403),
        ("GET", "/schemas/ids/99999/versions", None, 40403),
        ("DELETE", "/subjects/codes-deleted", None, 40404),
        ("DELETE", "/subjects/codes?permanent=true", None, 40405),
        ("DELETE", "/subjects/codes-deleted/versions/1", None, 40406),
        ("DELETE", "/subjects/codes/versions/1?permanent=true", None, 40407),
        ("GET", "/config/none", None, 40408),
        ("GET", "/mode/none", None, 40409),
        ("DELETE", "/config/none", None, 40401),
        ("DELETE", "/mode/none", None, 40401),
        ("POST", "/subjects/codes/versions", {"schema": '"bytes"'}, 409),
        ("POST", "/subjects/codes/versions", {"schema": "no"}, 42201),
        ("POST", "/subjects/codes/versions", {}, 42201),
        ("POST", "/subjects/codes", {"schema": "{}"}, 42201),
        ("POST", "/subjects/codes/versions", {**SCHEMA, "schemaType": "XML"}, 42201),
        ("POST", "/subjects/codes/versions", {"schema": '"int"', "version": 9}, 409),
        ("GET", "/subjects/codes/versions/0", None, 42202),
        ("GET", "/subjects/codes/versions/first", None, 42202),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
        ("PUT", "/config/codes", {}, 42203),
        ("PUT", "/mode", {"mode": "SLEEPY"}, 42204),
        ("POST", "/subjects/codes/versions", {**SCHEMA, "id": 8}, 42205),
        ("PUT", "/mode", {"mode": "IMPORT"}, 42205),
        ("POST", "/subjects/%20/versions", SCHEMA, 42208),
        ("POST", "/subjects/__GLOBAL/versions", SCHEMA, 42208),
        ("POST", "/subjects/a%00b/versions", SCHEMA, 42208),
        ("POST", "/subjects/codes/versions", {**SCHEMA, "metadata": {"properties": {"a": "b"}}}, 422),
        ("POST", "/subjects/codes/versions", {**SCHEMA, "references": [{"name": "x"}]}, 422),
        ("GET", "/nothing", None, 404),
        ("PATCH", "/subjects", None, 405),
        ("GET", "/schemas/ids/one", None, 404),
    ],
)
def test_errors_have_confluents_codes(api: Api, method: str, path: str, body: dict[str, Any] | None, code: int) -> None:
    api.register("codes")
    if not api.get("/subjects?subjectPrefix=codes-deleted&deleted=true"):
        api.register("codes-deleted")
        api.delete("/subjects/codes-deleted")
    assert api.fails(method, path, body) == code


def test_a_schema_that_does_not_fit_into_a_record_is_refused(api: Api, subject: str) -> None:
    text = json.dumps({"type": "record", "name": "R", "doc": "x" * 1_000_000, "fields": []})
    assert api.fails("POST", f"/subjects/{subject}/versions", {"schema": text}) == 42209
    assert api.register(subject) > 0


def test_what_is_not_json_is_refused(api: Api) -> None:
    response = api.client.post("/subjects/s/versions", content=b"{")
    assert (response.status_code, response.json()["error_code"]) == (400, 400)


def test_numbers_of_any_length_are_answered(api: Api, subject: str) -> None:
    digits = "9" * 5000
    assert api.fails("GET", f"/subjects/{subject}/versions/{digits}") == 42202
    assert api.fails("GET", f"/schemas/ids/{digits}") == 404
    references = [{"name": "a", "subject": subject, "version": True}]
    assert api.fails("POST", f"/subjects/{subject}/versions", {"schema": AVRO_INT, "references": references}) == 422


def test_hostile_schemas_are_refused_and_hold_up_nobody(api: Api, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    for text in ('{"items":' * 10_000 + "{}" + "}" * 10_000, r'{"title": "\ud800"}', '{"minimum": ' + "9" * 5000 + "}"):
        assert api.fails("POST", path, {"schema": text, "schemaType": "JSON"}) == 42201
    objects = [{"type": "object", "properties": {f"p{i}": {}}} for i in range(300)]
    api.register(subject, json.dumps({"anyOf": objects}), schemaType="JSON")
    with ThreadPoolExecutor(1) as pool:
        new = {"schema": json.dumps({"anyOf": objects, "title": "x"}), "schemaType": "JSON"}
        refused = pool.submit(api.fails, "POST", path, new)
        assert api.get(path) == [1]
        api.register(f"{subject}-other")
        assert refused.result() == 409
