"""`/subjects`: subjects and their versions."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from skylog.registry.changes import Change, delete_subject, delete_version, existing_version
from skylog.registry.errors import RegistryError, schema_not_found, subject_not_found, version_not_found
from skylog.registry.records import StoredSchema
from skylog.registry.rest.call import CONTENT_TYPE, Call, answer
from skylog.registry.rest.routing import Route, changing, reading
from skylog.registry.schemas import in_format, look_up, recognize, registration, wants_normal
from skylog.registry.subjects import ALL_CONTEXTS, DEFAULT_CONTEXT, check_subject, qualify


async def list_subjects(call: Call) -> Any:
    return call.page(
        call.state.subjects(subject_prefix(call), deleted=call.flag("deleted"), deleted_only=call.flag("deletedOnly"))
    )


def subject_prefix(call: Call) -> str:
    """Return the prefix of subjects in the query, in the context of the path. Without one, all contexts count."""
    given = call.text("subjectPrefix", ALL_CONTEXTS)
    prefix = given.removeprefix(ALL_CONTEXTS)
    return prefix if call.context == DEFAULT_CONTEXT else qualify(prefix, call.context)


async def list_versions(call: Call) -> Any:
    subject = call.subject()
    found = call.state.versions(subject, deleted=call.flag("deleted"), deleted_only=call.flag("deletedOnly"))
    if not found:
        raise subject_not_found(subject)
    return call.page([each.version for each in found])


def chosen_version(call: Call) -> StoredSchema:
    """Return the version in the path. Raises RegistryError."""
    subject, version, deleted = call.subject(), call.version(), call.flag("deleted")
    found = call.state.version(subject, version, deleted=deleted)
    if found is None:
        if not call.state.versions(subject, deleted=deleted):
            raise subject_not_found(subject)
        raise version_not_found(-1 if version is None else version)
    return found


async def get_version(call: Call) -> Any:
    return (await in_format(call.state, chosen_version(call), call.text("format"))).document()


async def get_text(call: Call) -> Response:
    return Response(chosen_version(call).text, media_type=CONTENT_TYPE)


async def referenced_by(call: Call) -> Any:
    found = chosen_version(call)
    return call.page(sorted({each.id for each in call.state.referrers(found.subject, found.version)}))


async def find_schema(call: Call) -> Any:
    """Return the version of a subject that has the schema in the body."""
    subject, deleted = call.subject(), call.flag("deleted")
    given = call.schema()
    if not call.state.versions(subject, deleted=deleted):
        raise subject_not_found(subject)
    found = await look_up(call.state, subject, given, normalize=call.flag("normalize"), deleted=deleted)
    if found is None:
        raise schema_not_found()
    return found.document()


async def register_schema(call: Call) -> Response:
    subject, given, normalize = call.subject(), call.schema(), call.flag("normalize")
    check_subject(subject)
    if given.id is None and given.version is None:
        try:  # what is registered already needs no writer
            new = await recognize(call.state, subject, given, normalize=normalize or wants_normal(call.state, subject))
            found = existing_version(call.state, subject, new)
        except RegistryError:  # a reference may not be read yet: the registry that writes decides
            found = None
        if found is not None:
            return answer({"id": found.id})

    async def decide() -> Change:
        return await registration(call.state, subject, given, normalize=normalize)

    return await call.make(decide)


async def delete_subject_versions(call: Call) -> Response:
    subject, permanent = call.subject(), call.flag("permanent")

    async def decide() -> Change:
        return delete_subject(call.state, subject, permanent=permanent)

    return await call.make(decide)


async def delete_one_version(call: Call) -> Response:
    subject, version, permanent = call.subject(), call.version(), call.flag("permanent")

    async def decide() -> Change:
        return delete_version(call.state, subject, version, permanent=permanent)

    return await call.make(decide)


ROUTES: Final[tuple[Route, ...]] = (
    reading("GET", "/subjects", list_subjects),
    reading("POST", "/subjects/{subject}", find_schema),
    changing("DELETE", "/subjects/{subject}", delete_subject_versions),
    reading("GET", "/subjects/{subject}/versions", list_versions),
    changing("POST", "/subjects/{subject}/versions", register_schema),
    reading("GET", "/subjects/{subject}/versions/{version}", get_version),
    changing("DELETE", "/subjects/{subject}/versions/{version}", delete_one_version),
    reading("GET", "/subjects/{subject}/versions/{version}/schema", get_text),
    reading("GET", "/subjects/{subject}/versions/{version}/referencedby", referenced_by),
)
