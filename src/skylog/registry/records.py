"""The records of the topic `_schemas`: keys and values in Confluent's JSON.

A topic that Confluent's registry has written can be read, and the other way around. Keys are compared byte by byte by
compaction, so the order of their fields is Confluent's.

| key | value |
|---|---|
| SCHEMA, subject, version | the schema with its id; no value: deleted for good |
| DELETE_SUBJECT, subject | the versions up to this one are soft-deleted |
| CONFIG, subject or null | the compatibility level |
| MODE, subject or null | the mode |
| CONTEXT | a context that has subjects |
| NOOP | the largest id of each context, an addition of skylog that Confluent's registry ignores |

The last one is needed because compaction removes what is deleted for good, and its id must not be given again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from skylog.schemas import Reference

DEFAULT_KIND: Final = "AVRO"
_TENANT: Final = "default"
_SHOWN_EXTRAS: Final = ("metadata", "ruleSet")
_MAX_IDS: Final = "maxIds"


class Record(NamedTuple):
    """A record to write, or one that was read."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A version of a subject. `extra` has fields of Confluent's registry that this one stores and shows only."""

    subject: str
    version: int
    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    is_deleted: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the version as the API shows it."""
        return {"subject": self.subject, "version": self.version, "id": self.id} | self.content()

    def content(self) -> dict[str, Any]:
        """Return the schema as the API shows it, without subject and version."""
        kind = {} if self.kind == DEFAULT_KIND else {"schemaType": self.kind}
        references = {"references": reference_documents(self.references)} if self.references else {}
        shown = {name: self.extra[name] for name in _SHOWN_EXTRAS if self.extra.get(name) is not None}
        return {**kind, **references, **shown, "schema": self.text}


@dataclass(frozen=True, slots=True)
class Key:
    """A key. `subject` is None in keys that are about everything; `version` is 0 in keys without one."""

    keytype: str
    subject: str | None = None
    version: int = 0


def reference_documents(references: Iterable[Reference]) -> list[dict[str, Any]]:
    """Return references as the API and the topic have them."""
    return [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]


def read_key(data: bytes) -> Key:
    """Parse a key. Raises ValueError if it is none of Confluent's format."""
    document = _object(data)
    keytype, subject, version = document.get("keytype"), document.get("subject"), document.get("version", 0)
    if not isinstance(keytype, str) or not isinstance(subject, str | None) or not isinstance(version, int):
        raise ValueError(f"not a key of a registry: {data[:200]!r}")
    if keytype in ("SCHEMA", "DELETE_SUBJECT") and subject is None:
        raise ValueError(f"a key without its subject: {data[:200]!r}")
    return Key(keytype, subject, version)


def read_schema(data: bytes) -> StoredSchema:
    """Parse the value of a SCHEMA key. Raises ValueError."""
    found = _object(data)
    known = {"subject", "version", "id", "schemaType", "schema", "references", "deleted"}
    try:
        references = [
            Reference(each["name"], each["subject"], each["version"]) for each in found.get("references") or ()
        ]
        return StoredSchema(
            _typed(found["subject"], str),
            _typed(found["version"], int),
            _typed(found["id"], int),
            found.get("schemaType") or DEFAULT_KIND,
            _typed(found["schema"], str),
            tuple(references),
            bool(found.get("deleted")),
            {name: value for name, value in found.items() if name not in known},
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a schema of a registry: {data[:200]!r}") from error


def read_value(data: bytes) -> dict[str, Any]:
    """Parse any other value. Raises ValueError."""
    return _object(data)


def read_max_ids(data: bytes) -> dict[str, int]:
    """Parse the value of a NOOP key: the largest id by context. Other registries write nothing there."""
    found = _object(data).get(_MAX_IDS, {})
    return {str(name): _typed(number, int) for name, number in found.items()} if isinstance(found, dict) else {}


def schema_record(schema: StoredSchema) -> Record:
    document: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    if schema.kind != DEFAULT_KIND:
        document["schemaType"] = schema.kind
    if schema.references:
        document["references"] = reference_documents(schema.references)
    document |= schema.extra
    document |= {"schema": schema.text, "deleted": schema.is_deleted}
    return Record(_schema_key(schema.subject, schema.version), orjson.dumps(document))


def erased_schema(subject: str, version: int) -> Record:
    return Record(_schema_key(subject, version), None)


def deleted_subject(subject: str, up_to_version: int) -> Record:
    value = {"subject": subject, "version": up_to_version}
    return Record(orjson.dumps({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}), orjson.dumps(value))


def config_record(subject: str | None, config: Mapping[str, Any] | None) -> Record:
    """Return the record of a config; None deletes it."""
    key = orjson.dumps({"keytype": "CONFIG", "subject": subject, "magic": 0})
    owner = {} if subject is None else {"subject": subject}
    return Record(key, None if config is None else orjson.dumps({**owner, **config}))


def mode_record(subject: str | None, mode: str | None) -> Record:
    """Return the record of a mode; None deletes it."""
    key = orjson.dumps({"keytype": "MODE", "subject": subject, "magic": 0})
    owner = {} if subject is None else {"subject": subject}
    return Record(key, None if mode is None else orjson.dumps({**owner, "mode": mode}))


def context_record(context: str) -> Record:
    value = {"tenant": _TENANT, "context": context}
    return Record(orjson.dumps({"keytype": "CONTEXT", **value, "magic": 0}), orjson.dumps(value))


def max_ids_record(max_ids: Mapping[str, int]) -> Record:
    return Record(orjson.dumps({"keytype": "NOOP", "magic": 0}), orjson.dumps({_MAX_IDS: dict(max_ids)}))


def _schema_key(subject: str, version: int) -> bytes:
    return orjson.dumps({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _object(data: bytes) -> dict[str, Any]:
    found = orjson.loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {data[:200]!r}")
    return found


def _typed(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value
