"""The state of a registry: subjects, versions, ids, configs and modes. A pure function of the topic's records.

`apply` takes the records in the order of their offsets. The state after any prefix of the topic, compacted or not, is
the same as after the records themselves. Nothing here parses a schema or knows the time.

Invariants: an id stands for one text in its context, or for none; the next id of a context is larger than every id that
it ever had, also of schemas that were deleted for good.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from skylog.registry.records import (
    Key,
    Record,
    StoredSchema,
    max_ids_record,
    read_key,
    read_max_ids,
    read_schema,
    read_value,
)
from skylog.registry.subjects import context_of, context_scope
from skylog.schemas import Reference

logger = logging.getLogger(__name__)

DEFAULT_LEVEL: Final = "BACKWARD"
LEVEL: Final = "compatibilityLevel"
FIRST_VERSION: Final = 1

Identity = tuple[str, str, str, tuple[Reference, ...]]
"""What makes two schemas one: context, format, text and references."""
Place = tuple[str, int]
"""Subject and version."""


class Mode(StrEnum):
    """What a subject allows. READONLY_OVERRIDE, for all subjects, overrides their own modes."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"


class RegistryState:
    """Built from records by `apply`. `skipped` counts records that are not a registry's."""

    def __init__(self) -> None:
        self.skipped = 0
        self.max_ids: dict[str, int] = {}
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._ids: dict[tuple[str, int], set[Place]] = {}
        self._identities: dict[Identity, dict[int, int]] = {}  # the number of versions by id
        self._referrers: dict[Place, set[Place]] = {}
        self._configs: dict[str | None, Mapping[str, Any]] = {}
        self._modes: dict[str | None, Mode] = {}

    # -- records

    def apply(self, record: Record) -> None:
        """Take a record of the topic. One that is not a registry's is counted, logged and skipped."""
        try:
            self._apply(read_key(record.key), record.value)
        except ValueError as error:
            self.skipped += 1
            logger.warning("skipped a record of the registry's topic: %s", error)

    def _apply(self, key: Key, value: bytes | None) -> None:
        match key.keytype:
            case "SCHEMA":
                assert key.subject is not None
                schema = None if value is None else read_schema(value)
                if schema is not None:
                    schema = replace(schema, subject=key.subject, version=key.version)
                self._put(key.subject, key.version, schema)
            case "DELETE_SUBJECT" if value is not None:
                assert key.subject is not None
                self._soft_delete(key.subject, int(read_value(value).get("version", 0)))
            case "CONFIG":
                found = None if value is None else read_value(value)
                _set(self._configs, key.subject, found and {each: found[each] for each in found if each != "subject"})
            case "MODE":
                _set(self._modes, key.subject, None if value is None else Mode(read_value(value).get("mode", "")))
            case "NOOP" if value is not None:
                for context, number in read_max_ids(value).items():
                    self._note_id(context, number)

    def _put(self, subject: str, version: int, schema: StoredSchema | None) -> None:
        versions = self._subjects.setdefault(subject, {})
        former = versions.pop(version, None)
        if former is not None:
            self._unlink(former)
        if schema is not None:
            versions[version] = schema
            self._link(schema)
        if not versions:
            del self._subjects[subject]

    def _link(self, schema: StoredSchema) -> None:
        context, place = context_of(schema.subject), (schema.subject, schema.version)
        self._ids.setdefault((context, schema.id), set()).add(place)
        counts = self._identities.setdefault(_identity(schema), {})
        counts[schema.id] = counts.get(schema.id, 0) + 1
        for each in schema.references:
            self._referrers.setdefault((each.subject, each.version), set()).add(place)
        self._note_id(context, schema.id)

    def _unlink(self, schema: StoredSchema) -> None:
        context, place, identity = context_of(schema.subject), (schema.subject, schema.version), _identity(schema)
        _discard(self._ids, (context, schema.id), place)
        counts = self._identities[identity]
        counts[schema.id] -= 1
        if not counts[schema.id]:
            del counts[schema.id]
        if not counts:
            del self._identities[identity]
        for each in set(schema.references):
            _discard(self._referrers, (each.subject, each.version), place)

    def _soft_delete(self, subject: str, up_to_version: int) -> None:
        for version, schema in list(self._subjects.get(subject, {}).items()):
            if version <= up_to_version:
                self._subjects[subject][version] = replace(schema, is_deleted=True)

    def _note_id(self, context: str, number: int) -> None:
        self.max_ids[context] = max(self.max_ids.get(context, 0), number)

    # -- schemas

    def subjects(self, prefix: str = "", *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Return the names of subjects that have a version, sorted; soft-deleted ones too, or only those."""
        found = []
        for subject, versions in self._subjects.items():
            is_live = any(not each.is_deleted for each in versions.values())
            if subject.startswith(prefix) and (not is_live if deleted_only else is_live or deleted):
                found.append(subject)
        return sorted(found)

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[StoredSchema]:
        """Return the versions of a subject, oldest first."""
        found = sorted(self._subjects.get(subject, {}).values(), key=lambda each: each.version)
        if deleted_only:
            return [each for each in found if each.is_deleted]
        return [each for each in found if deleted or not each.is_deleted]

    def version(self, subject: str, version: int | None, *, deleted: bool = False) -> StoredSchema | None:
        """Return a version, the latest for None."""
        if version is None:
            found = self.versions(subject, deleted=deleted)
            return found[-1] if found else None
        schema = self._subjects.get(subject, {}).get(version)
        return schema if schema is not None and (deleted or not schema.is_deleted) else None

    def schemas(self, prefix: str = "", *, deleted: bool = False) -> Iterator[StoredSchema]:
        """Yield all versions of the subjects with this prefix, by subject and version."""
        for subject in self.subjects(prefix, deleted=deleted):
            yield from self.versions(subject, deleted=deleted)

    def by_id(self, context: str, schema_id: int, *, deleted: bool = True) -> list[StoredSchema]:
        """Return the versions that have this id, by subject and version."""
        places = sorted(self._ids.get((context, schema_id), ()))
        found = [self._subjects[subject][version] for subject, version in places]
        return [each for each in found if deleted or not each.is_deleted]

    def id_of(self, context: str, kind: str, text: str, references: Iterable[Reference]) -> int | None:
        """Return the id of a schema that some subject of the context has, also if it is soft-deleted there."""
        return min(self._identities.get((context, kind, text, tuple(references)), ()), default=None)

    def referrers(self, subject: str, version: int) -> list[StoredSchema]:
        """Return the versions that refer to this one, except soft-deleted ones."""
        places = sorted(self._referrers.get((subject, version), ()))
        found = [self._subjects[name][number] for name, number in places]
        return [each for each in found if not each.is_deleted]

    def next_version(self, subject: str) -> int:
        return max(self._subjects.get(subject, {}), default=FIRST_VERSION - 1) + 1

    def next_id(self, context: str) -> int:
        return self.max_ids.get(context, 0) + 1

    def contexts(self) -> list[str]:
        return sorted({context_of(subject) for subject in self._subjects} | {context_of("")})

    def counts(self) -> dict[str, int]:
        """Return the number of subjects, versions and ids, without soft-deleted ones."""
        live = [each for versions in self._subjects.values() for each in versions.values() if not each.is_deleted]
        ids = {(context_of(each.subject), each.id) for each in live}
        return {"subjects": len({each.subject for each in live}), "versions": len(live), "ids": len(ids)}

    # -- configs and modes

    def config(self, subject: str | None) -> Mapping[str, Any] | None:
        """Return the config that is set for this subject, context (`:.west:`) or, with None, for everything."""
        return self._configs.get(subject)

    def config_in_scope(self, subject: str | None) -> dict[str, Any]:
        """Return the config that applies to a subject: its own, its context's, the global one, the default."""
        scopes = (None,) if subject is None else (None, context_scope(subject), subject)
        found: dict[str, Any] = {LEVEL: DEFAULT_LEVEL}
        for scope in scopes:
            found |= self._configs.get(scope) or {}
        return found

    def mode(self, subject: str | None) -> Mode | None:
        return self._modes.get(subject)

    def mode_in_scope(self, subject: str | None) -> Mode:
        """Return the mode that applies to a subject: its own, its context's, the global one, READWRITE."""
        everywhere = self._modes.get(None, Mode.READWRITE)
        if subject is None or everywhere is Mode.READONLY_OVERRIDE:
            return everywhere
        return self._modes.get(subject) or self._modes.get(context_scope(subject)) or everywhere

    # -- comparison

    def max_ids_record(self) -> Record:
        """Return the record that keeps ids from being given again when compaction has removed their schemas."""
        return max_ids_record(self.max_ids)

    def document(self) -> dict[str, Any]:
        """Return everything, to compare two states."""
        return {
            "schemas": [(each.document(), each.is_deleted) for each in self.schemas(deleted=True)],
            "ids": {key: sorted(places) for key, places in sorted(self._ids.items())},
            "referrers": {key: sorted(places) for key, places in sorted(self._referrers.items())},
            "max_ids": dict(sorted(self.max_ids.items())),
            "configs": dict(self._configs),
            "modes": dict(self._modes),
        }


def _identity(schema: StoredSchema) -> Identity:
    return context_of(schema.subject), schema.kind, schema.text, schema.references


def _set(mapping: dict[Any, Any], key: object, value: object) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def _discard(mapping: dict[Any, set[Place]], key: object, place: Place) -> None:
    places = mapping.get(key, set())
    places.discard(place)
    if not places:
        mapping.pop(key, None)
