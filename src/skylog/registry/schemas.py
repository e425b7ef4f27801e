"""Finds and registers schemas: parses what a client sends, compares it with what is stored, checks compatibility."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, ParamSpec, TypeVar

from skylog.registry.changes import Change, NewSchema, check_registration, existing_version, register
from skylog.registry.errors import incompatible
from skylog.registry.parsing import Source, as_descriptor, conflicts, gather, parse_source, source_of
from skylog.registry.records import StoredSchema
from skylog.registry.state import LEVEL, Mode, RegistryState
from skylog.schemas import Reference, SchemaType

T = TypeVar("T")
P = ParamSpec("P")

_parser: Final = ThreadPoolExecutor(1, thread_name_prefix="registry-parser")
"""One thread: parsing uses the CPU only, and the event loop needs it too."""


@dataclass(frozen=True, slots=True)
class GivenSchema:
    """A schema as a client sends it. `version` and `id` are given to import it."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    version: int | None = None


async def in_parser(work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_parser, lambda: work(*arguments, **options))


async def recognize(state: RegistryState, subject: str, given: GivenSchema, *, normalize: bool) -> NewSchema:
    """Parse a schema, and return it with the text that is stored for it. Raises RegistryError if it is invalid.

    Another registry may have stored the same schema in another notation. Then it is the text of that version.
    """
    source = gather(state, subject, given.kind, given.text, given.references)
    stored = [(each, source_of(state, each)) for each in _alike(state, subject, given)]
    text = await in_parser(_recognize, source, stored, normalize)
    return NewSchema(given.kind, text, given.references, given.id, given.version)


def _alike(state: RegistryState, subject: str, given: GivenSchema) -> list[StoredSchema]:
    found = state.versions(subject, deleted=True)
    return [each for each in reversed(found) if (each.kind, each.references) == (given.kind, given.references)]


def _recognize(source: Source, stored: Sequence[tuple[StoredSchema, Source]], normalize: bool) -> str:
    schema = parse_source(source)
    text = schema.normalized if normalize else schema.canonical
    if any(each.text == text for each, _ in stored):
        return text
    for each, its_source in stored:
        parsed = parse_source(its_source)
        if text == (parsed.normalized if normalize else parsed.canonical):
            return each.text
    return text


async def in_format(state: RegistryState, schema: StoredSchema, wanted: str) -> StoredSchema:
    """Return a schema with the text in a format that clients ask for: `serialized`, for Protobuf. Others are as is."""
    if wanted != "serialized" or schema.kind != SchemaType.PROTOBUF:
        return schema
    return replace(schema, text=await in_parser(as_descriptor, source_of(state, schema)))


async def registration(state: RegistryState, subject: str, given: GivenSchema, *, normalize: bool) -> Change:
    """Decide a registration. Raises RegistryError if the schema is invalid, incompatible or not permitted."""
    check_registration(state, subject, NewSchema(given.kind, given.text, id=given.id))
    new = await recognize(state, subject, given, normalize=normalize or wants_normal(state, subject))
    is_checked = state.mode_in_scope(subject) is not Mode.IMPORT and existing_version(state, subject, new) is None
    problems = await find_conflicts(state, subject, given) if is_checked else []
    if problems:
        raise incompatible(subject, problems)
    return register(state, subject, new)


def wants_normal(state: RegistryState, subject: str) -> bool:
    """Whether the config of a subject normalizes its schemas."""
    return bool(state.config_in_scope(subject).get("normalize"))


async def find_conflicts(
    state: RegistryState, subject: str, given: GivenSchema, version: StoredSchema | None = None
) -> list[str]:
    """Return why a schema may not follow those of a subject, or one version of it, at the level of the subject."""
    earlier = state.versions(subject) if version is None else [version]
    sources = [(each.version, source_of(state, each)) for each in earlier]
    new = gather(state, subject, given.kind, given.text, given.references)
    return await in_parser(conflicts, state.config_in_scope(subject)[LEVEL], new, sources)


async def look_up(
    state: RegistryState, subject: str, given: GivenSchema, *, normalize: bool, deleted: bool
) -> StoredSchema | None:
    """Return the version of a subject that has this schema."""
    plain = replace(given, id=None, version=None)
    new = await recognize(state, subject, plain, normalize=normalize or wants_normal(state, subject))
    return existing_version(state, subject, new, deleted=deleted)
