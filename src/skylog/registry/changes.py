"""What a request changes: the records to write, and the answer. Pure functions of the state.

The writer calls them one at a time, and applies the records of one before it calls the next. Schemas are parsed and
checked for compatibility before; see `NewSchema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from skylog.registry.errors import (
    invalid_schema,
    is_referenced,
    not_permitted,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from skylog.registry.records import (
    Record,
    StoredSchema,
    config_record,
    context_record,
    deleted_subject,
    erased_schema,
    mode_record,
    schema_record,
)
from skylog.registry.state import LEVEL, Mode, RegistryState
from skylog.registry.subjects import DEFAULT_CONTEXT, context_of
from skylog.schemas import Reference


@dataclass(frozen=True, slots=True)
class Change:
    """Records to write in one transaction, possibly none, and the answer to the client."""

    records: tuple[Record, ...]
    answer: Any


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema that was parsed. `id` and `version` are given by the client in the mode IMPORT, otherwise None."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    version: int | None = None


def existing_version(
    state: RegistryState, subject: str, new: NewSchema, *, deleted: bool = False
) -> StoredSchema | None:
    """Return the version of a subject that has this text, the latest of several."""
    for each in reversed(state.versions(subject, deleted=deleted)):
        if (each.kind, each.text, each.references) == (new.kind, new.text, new.references):
            return each
    return None


def check_registration(state: RegistryState, subject: str, new: NewSchema) -> None:
    """Raise RegistryError if the mode of the subject does not allow a registration."""
    mode = state.mode_in_scope(subject)
    check_writable(state, subject)
    if new.id is not None and mode is not Mode.IMPORT:
        raise not_permitted(f"Subject {subject} is not in import mode")
    if new.id is None and mode is not Mode.READWRITE:
        raise not_permitted(f"Subject {subject} is not in read-write mode")


def check_writable(state: RegistryState, subject: str | None) -> None:
    if state.mode_in_scope(subject) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise not_permitted(f"Subject {subject} is in read-only mode")


def register(state: RegistryState, subject: str, new: NewSchema) -> Change:
    """Register a schema that is compatible. The answer is its id, also if the subject has it already."""
    check_registration(state, subject, new)
    existing = existing_version(state, subject, new)
    if existing is not None and new.id in (None, existing.id) and new.version in (None, existing.version):
        return Change((), {"id": existing.id})
    version = state.next_version(subject) if new.version is None else new.version
    if new.id is None and version != state.next_version(subject):
        raise invalid_schema("Version is not one more than previous version")
    context = context_of(subject)
    schema_id = _choose_id(state, context, new)
    stored = StoredSchema(subject, version, schema_id, new.kind, new.text, new.references)
    records = [] if context in state.contexts() or context == DEFAULT_CONTEXT else [context_record(context)]
    if state.version(subject, version, deleted=True) is not None:
        records.append(state.max_ids_record())  # the mode IMPORT overwrites it
    # As Confluent's registry does: a soft-deleted version with the same schema gives way to the new one.
    former = [
        each.version
        for each in state.versions(subject, deleted_only=True)
        if each.id == schema_id and not state.referrers(subject, each.version)
    ]
    records += [erased_schema(subject, each) for each in former if each != version]
    return Change((*records, schema_record(stored)), {"id": schema_id})


def _choose_id(state: RegistryState, context: str, new: NewSchema) -> int:
    if new.id is None:
        known = state.id_of(context, new.kind, new.text, new.references)
        return state.next_id(context) if known is None else known
    holders = state.by_id(context, new.id)
    if any((each.kind, each.text, each.references) != (new.kind, new.text, new.references) for each in holders):
        raise not_permitted(f"Overwrite new schema with id {new.id} is not permitted.")
    return new.id


def delete_version(state: RegistryState, subject: str, version: int | None, *, permanent: bool) -> Change:
    """Delete a version, the latest for None. The answer is its number."""
    check_writable(state, subject)
    if not state.versions(subject, deleted=True):
        raise subject_not_found(subject)
    schema = state.version(subject, version, deleted=permanent or version is not None)
    if schema is None:
        raise version_not_found(-1 if version is None else version)
    if schema.is_deleted and not permanent:
        raise version_soft_deleted(subject, schema.version)
    if not schema.is_deleted and permanent:
        raise version_not_soft_deleted(subject, schema.version)
    _check_references(state, schema)
    if permanent:
        return Change((state.max_ids_record(), erased_schema(subject, schema.version)), schema.version)
    records = [schema_record(replace(schema, is_deleted=True))]
    if len(state.versions(subject)) == 1:
        records += _without_settings(state, subject)
    return Change(tuple(records), schema.version)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Change:
    """Delete a subject. The answer is the list of its versions."""
    check_writable(state, subject)
    every, live = state.versions(subject, deleted=True), state.versions(subject)
    if not every:
        raise subject_not_found(subject)
    if permanent and live:
        raise subject_not_soft_deleted(subject)
    if not permanent and not live:
        raise subject_soft_deleted(subject)
    for schema in every if permanent else live:
        _check_references(state, schema)
    if permanent:
        erased = (erased_schema(subject, each.version) for each in every)
        return Change((state.max_ids_record(), *erased), [each.version for each in every])
    # The newest record of this key has to cover all soft-deleted versions: compaction removes the others.
    deletion = deleted_subject(subject, every[-1].version)
    return Change((deletion, *_without_settings(state, subject)), [each.version for each in live])


def _check_references(state: RegistryState, schema: StoredSchema) -> None:
    if state.referrers(schema.subject, schema.version):
        raise is_referenced(schema.subject, schema.version)


def _without_settings(state: RegistryState, subject: str) -> list[Record]:
    """Return the records that remove the config and the mode of a subject."""
    records = [] if state.mode(subject) is None else [mode_record(subject, None)]
    return records if state.config(subject) is None else [*records, config_record(subject, None)]


def set_config(state: RegistryState, subject: str | None, changed: Mapping[str, Any], answer: Any) -> Change:
    """Change some keys of a config, and keep the others."""
    check_writable(state, subject)
    return Change((config_record(subject, {**(state.config(subject) or {}), **changed}),), answer)


def delete_config(state: RegistryState, subject: str | None) -> Change:
    """Delete the config of a subject, or the global one. The answer is what it was."""
    check_writable(state, subject)
    found = state.config(subject)
    if found is None and subject is not None:
        raise subject_not_found(subject)
    return Change((config_record(subject, None),), dict(found or {LEVEL: state.config_in_scope(None)[LEVEL]}))


def set_mode(state: RegistryState, subject: str | None, mode: Mode, *, force: bool) -> Change:
    """Set the mode of a subject, or of all. IMPORT requires that there are no schemas, unless it is forced."""
    records: list[Record] = []
    if mode is Mode.IMPORT and state.mode_in_scope(subject) is not Mode.IMPORT and not force:
        if _subjects_of(state, subject, deleted=False):
            raise not_permitted("Cannot import since found existing subjects")
        left = [
            each for name in _subjects_of(state, subject, deleted=True) for each in state.versions(name, deleted=True)
        ]
        for schema in left:
            _check_references(state, schema)
        if left:
            records = [state.max_ids_record(), *(erased_schema(each.subject, each.version) for each in left)]
    return Change((*records, mode_record(subject, mode)), {"mode": mode.value})


def _subjects_of(state: RegistryState, scope: str | None, *, deleted: bool) -> list[str]:
    """Return the subjects that a mode is for: one, those of a context, or all."""
    if scope is None:
        return state.subjects(deleted=deleted)
    is_context = scope.startswith(":.") and scope.endswith(":")
    found = state.subjects(scope, deleted=deleted)
    return found if is_context else [each for each in found if each == scope]


def delete_mode(state: RegistryState, subject: str) -> Change:
    """Delete the mode of a subject. The answer is what it was."""
    found = state.mode(subject)
    if found is None:
        raise subject_not_found(subject)
    return Change((mode_record(subject, None),), {"mode": found.value})
