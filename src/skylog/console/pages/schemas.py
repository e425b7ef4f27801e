"""`/schemas`: the subjects of the schema registry, their versions, and what has changed between two of them."""

from __future__ import annotations

import asyncio
import difflib
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request

from skylog.console.messages.json_layout import pretty
from skylog.console.messages.schema_reader import SchemaReader
from skylog.console.server.fields import FieldError, query
from skylog.console.server.page import Page, Route, console_of
from skylog.schemas import InvalidSchema, SchemaType, parse
from skylog.schemas.compatibility import incompatibilities
from skylog.schemas.registry_client import RegisteredSchema

SHOWN: Final = 1000


def registry_of(request: Request) -> SchemaReader:
    found = console_of(request).registry
    if found is None:
        raise FieldError("this console has no schema registry: start it with --registry URL, see `skylog registry`")
    return found


async def subjects(request: Request) -> Page:
    fields, registry = query(request), registry_of(request)
    text, schema_id = fields.text("q", "").strip(), fields.optional_integer("id", low=0)
    document = await asyncio.to_thread(_subjects, registry, text, schema_id)
    return Page("schemas.html", "Schemas", {"q": text, "id": schema_id, **document})


def _subjects(registry: SchemaReader, text: str, schema_id: int | None) -> dict[str, Any]:
    found = registry.request("GET", "/schemas?latestOnly=true")
    if schema_id is not None:
        names = set(registry.request("GET", f"/schemas/ids/{schema_id}/subjects"))
        found = [each for each in found if each["subject"] in names]
    rows = [
        {
            "subject": each["subject"],
            "version": each["version"],
            "id": each["id"],
            "kind": each.get("schemaType") or SchemaType.AVRO.value,
        }
        for each in found
        if text.lower() in each["subject"].lower()
    ]
    level = registry.request("GET", "/config")["compatibilityLevel"]
    return {"level": level, "total": len(rows), "subjects": rows[:SHOWN]}


async def subject(request: Request) -> Page:
    """Show a version, the latest by default, and compare it with another one, by default the one before."""
    name, fields, registry = request.path_params["subject"], query(request), registry_of(request)
    version, against = fields.optional_integer("version", low=1), fields.optional_integer("against", low=1)
    document = await asyncio.to_thread(_subject, registry, name, version, against)
    return Page("schema.html", name, document, is_heavy=True)


def _subject(registry: SchemaReader, name: str, version: int | None, against: int | None) -> dict[str, Any]:
    client = registry.client
    versions = client.versions(name)
    shown = client.version(name, "latest" if version is None else version)
    before = [each for each in versions if each < shown.version]
    if against is None and before:
        against = before[-1]
    other = None if against is None or against == shown.version else client.version(name, against)
    used = registry.request("GET", f"/subjects/{quote(name, safe='')}/versions/{shown.version}/referencedby")
    return {
        "subject": name,
        "level": client.config(name),
        "versions": versions,
        "version": shown.version,
        "id": shown.id,
        "kind": shown.schema.kind,
        "schema": layout(shown),
        "references": [asdict(each) for each in shown.schema.references],
        "referenced_by": used,
        "comparison": None if other is None else compare(registry, other, shown),
    }


def layout(schema: RegisteredSchema) -> str:
    """Return the text of a schema to read: JSON is indented."""
    return schema.schema.text if schema.schema.kind == "PROTOBUF" else pretty(schema.schema.text)


def compare(registry: SchemaReader, old: RegisteredSchema, new: RegisteredSchema) -> dict[str, Any]:
    """Return the lines that differ, and why one cannot read data of the other."""
    names = f"version {old.version}", f"version {new.version}"
    lines = difflib.unified_diff(layout(old).splitlines(), layout(new).splitlines(), *names, lineterm="", n=5)
    found: dict[str, Any] = {
        "against": old.version,
        "diff": list(lines),
        "backward": [],
        "forward": [],
        "problem": None,
    }
    try:
        parsed = {
            each.version: parse(
                SchemaType(each.schema.kind), each.schema.text, registry.client.texts(each.schema.references)
            )
            for each in (old, new)
        }
        words = {"reader_is": "reader's", "writer_is": "writer's"}
        found["backward"] = incompatibilities(parsed[new.version], parsed[old.version], **words)
        found["forward"] = incompatibilities(parsed[old.version], parsed[new.version], **words)
    except (InvalidSchema, ValueError) as error:
        found["problem"] = str(error)
    return found


ROUTES: Final[tuple[Route, ...]] = (
    ("/schemas", subjects, ["GET"]),
    ("/schemas/{subject:path}", subject, ["GET"]),
)
