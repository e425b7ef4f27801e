"""Parses schemas with those that they refer to, and remembers the results. Checks compatibility.

Texts are gathered from the state on the event loop. Parsing, which may take long, needs nothing else, so it can run
in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from skylog.errors import SkylogError
from skylog.registry.errors import RegistryError, invalid_schema, unprocessable
from skylog.registry.records import StoredSchema
from skylog.registry.state import RegistryState
from skylog.registry.subjects import context_of, qualify
from skylog.schemas import InvalidSchema, Reference, Schema, SchemaType, parse
from skylog.schemas.levels import CompatibilityLevel, first_conflict

CACHED: Final = 1000


class Source(NamedTuple):
    """All that is needed to parse a schema: its format, its text, and the texts that it refers to, by name."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


def gather(state: RegistryState, subject: str, kind: str, text: str, references: Iterable[Reference]) -> Source:
    """Return the source of a schema, with everything that it refers to, also indirectly. Raises RegistryError."""
    found: dict[str, str] = {}
    waiting = [(each, subject) for each in references]
    while waiting:
        reference, referrer = waiting.pop()
        name = qualify(reference.subject, context_of(referrer))
        target = state.version(name, None if reference.version == -1 else reference.version, deleted=True)
        if target is None:
            raise invalid_schema(
                f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
            )
        if reference.name not in found:
            found[reference.name] = target.text
            waiting += [(each, target.subject) for each in target.references]
    return Source(kind, text, tuple(sorted(found.items())))


def source_of(state: RegistryState, schema: StoredSchema) -> Source:
    """Return the source of a stored schema. If a reference is missing, parsing it fails."""
    try:
        return gather(state, schema.subject, schema.kind, schema.text, schema.references)
    except RegistryError:
        return Source(schema.kind, schema.text)


def parse_source(source: Source) -> Schema:
    """Parse a schema. Raises RegistryError if it is invalid, or if this installation lacks what its format needs."""
    try:
        return _parse(source)
    except InvalidSchema as error:
        raise invalid_schema(f"type {source.kind}, details: {error}") from error
    except SkylogError as error:
        raise unprocessable(f"the registry lacks a package: {error}") from error


def as_descriptor(source: Source) -> str:
    """Return a Protobuf schema as its descriptor in base64, which some clients ask for. Raises RegistryError."""
    from skylog.schemas.protobuf.schema import serialized

    return serialized(parse_source(source))


@lru_cache(CACHED)
def _parse(source: Source) -> Schema:
    try:
        kind = SchemaType(source.kind)
    except ValueError:
        known = ", ".join(SchemaType)
        raise InvalidSchema(f"Invalid schema type {source.kind}; this registry knows {known}") from None
    return parse(kind, source.text, dict(source.references))


def conflicts(level: str, new: Source, earlier: Sequence[tuple[int, Source]]) -> list[str]:
    """Return why a schema may not follow earlier ones (version and source, oldest first), as Confluent says it.

    An earlier schema that cannot be parsed is a conflict, unless nothing has to be compared.
    """
    chosen = CompatibilityLevel(level)
    if chosen is CompatibilityLevel.NONE or not earlier:
        return []
    compared = earlier if chosen.is_transitive else earlier[-1:]
    schema = parse_source(new)
    try:
        old = [parse_source(source) for _, source in compared]
    except RegistryError as error:
        return [f"an earlier version cannot be compared: {error}", f"{{compatibility: '{chosen}'}}"]
    found = first_conflict(chosen, schema, old)
    if found is None:
        return []
    index, problems = found
    version, source = compared[index]
    return [
        *problems,
        f"{{oldSchemaVersion: {version}}}",
        f"{{oldSchema: '{source.text}'}}",
        f"{{compatibility: '{chosen}'}}",
    ]
