"""`/schemas`: schemas by their ids, and in lists."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from skylog.registry.errors import schema_not_found
from skylog.registry.records import StoredSchema
from skylog.registry.rest.call import CONTENT_TYPE, Call
from skylog.registry.rest.routing import Route, reading
from skylog.registry.rest.subjects import subject_prefix
from skylog.registry.schemas import in_format
from skylog.registry.subjects import bare_name
from skylog.schemas import SchemaType


def chosen_schemas(call: Call) -> list[StoredSchema]:
    """Return the versions that have the id in the path. Raises RegistryError."""
    schema_id = call.number("id")
    found = call.state.by_id(call.context_of_query(), schema_id)
    subject = bare_name(call.text("subject"))
    if subject and any(bare_name(each.subject) == subject for each in found):
        found = [each for each in found if bare_name(each.subject) == subject]
    if not found:
        raise schema_not_found(schema_id)
    return found


async def get_schema(call: Call) -> Any:
    shown = (await in_format(call.state, chosen_schemas(call)[0], call.text("format"))).content()
    return shown | {"maxId": call.state.next_id(call.context_of_query()) - 1} if call.flag("fetchMaxId") else shown


async def get_text(call: Call) -> Response:
    return Response(chosen_schemas(call)[0].text, media_type=CONTENT_TYPE)


async def subjects_of_schema(call: Call) -> Any:
    found = chosen_schemas(call)
    return call.page(sorted({each.subject for each in found if call.flag("deleted") or not each.is_deleted}))


async def versions_of_schema(call: Call) -> Any:
    found = [each for each in chosen_schemas(call) if call.flag("deleted") or not each.is_deleted]
    return call.page([{"subject": each.subject, "version": each.version} for each in found])


async def list_schemas(call: Call) -> Any:
    found = list(call.state.schemas(subject_prefix(call), deleted=call.flag("deleted")))
    if call.flag("latestOnly"):
        found = list({each.subject: each for each in found}.values())
    return [each.document() for each in call.page(found)]


async def list_types(call: Call) -> Any:
    return [SchemaType.JSON.value, SchemaType.PROTOBUF.value, SchemaType.AVRO.value]


ROUTES: Final[tuple[Route, ...]] = (
    reading("GET", "/schemas", list_schemas),
    reading("GET", "/schemas/types", list_types),
    reading("GET", "/schemas/ids/{id}", get_schema),
    reading("GET", "/schemas/ids/{id}/schema", get_text),
    reading("GET", "/schemas/ids/{id}/subjects", subjects_of_schema),
    reading("GET", "/schemas/ids/{id}/versions", versions_of_schema),
)
