"""A client of a schema registry with Confluent's REST API. Synchronous, cached, on the standard library.

What never changes is cached: the schema of an id, and the id of a schema in a subject. Everything else is asked anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import quote

from skylog.schemas.registry_http import (
    DEFAULT_TIMEOUT_S,
    URL,
    RegistryAddress,
    RegistryError,
    RegistryHttp,
    RegistryUnreachableError,
)
from skylog.schemas.schema import Reference

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"

_SUBJECT_NOT_FOUND: Final = 40401
_SCHEMA_NOT_FOUND: Final = 40403
_NO_COMPATIBILITY: Final = 40408


class SchemaNotFoundError(RegistryError):
    """The registry has no such subject, version or schema."""


class IncompatibleSchemaError(RegistryError):
    """The schema does not fit the earlier versions of the subject."""


class InvalidSchemaError(RegistryError):
    """The registry cannot parse the schema, or it refers to one that does not exist."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as it is sent to the registry. `kind` is AVRO, JSON or PROTOBUF."""

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"schema": self.text}
        if self.kind != AVRO:
            found["schemaType"] = self.kind
        if self.references:
            found["references"] = [asdict(reference) for reference in self.references]
        return found

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SchemaText:
        references = tuple(
            Reference(each["name"], each["subject"], each["version"]) for each in document.get("references") or ()
        )
        return cls(document["schema"], document.get("schemaType") or AVRO, references)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: SchemaText


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Whether a schema fits the versions of a subject, and if not, why."""

    is_compatible: bool
    messages: tuple[str, ...] = field(default=())


class RegistryClient:
    """Reads and registers schemas.

        registry = RegistryClient("http://127.0.0.1:8081")
        schema_id = registry.register("orders-value", SchemaText('{"type": "string"}'))

    The address is a URL, several separated by commas, a mapping with Confluent's names (`schema.registry.url`,
    `basic.auth.user.info`, `ssl.ca.location`, ...), or a RegistryAddress. All methods are safe in any thread, and raise
    RegistryError: RegistryUnreachableError if no registry answers.
    """

    def __init__(
        self, address: str | Mapping[str, str] | RegistryAddress, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        if isinstance(address, str):
            address = {URL: address}
        if not isinstance(address, RegistryAddress):
            address = RegistryAddress.of(address)
        self._http = RegistryHttp(address, timeout_s)
        self._by_id: dict[int, SchemaText] = {}
        self._ids: dict[tuple[str, SchemaText, bool], int] = {}

    def register(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> int:
        """Register a schema under a subject, unless it is there, and return its id."""
        key = (subject, schema, normalize)
        known = self._ids.get(key)
        if known is not None:
            return known
        answer = self._call("POST", f"{_versions(subject)}{_query(normalize=normalize)}", schema.document())
        self._ids[key] = found = int(answer["id"])
        return found

    def lookup(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> RegisteredSchema | None:
        """Return the version of `subject` that this schema is, or None."""
        path = f"/subjects/{quote(subject, safe='')}{_query(normalize=normalize)}"
        try:
            return self._registered(self._call("POST", path, schema.document()))
        except SchemaNotFoundError as error:
            if error.code in (_SUBJECT_NOT_FOUND, _SCHEMA_NOT_FOUND):
                return None
            raise

    def schema_by_id(self, schema_id: int) -> SchemaText:
        known = self._by_id.get(schema_id)
        if known is not None:
            return known
        found = SchemaText.of(self._call("GET", f"/schemas/ids/{schema_id}"))
        return self._by_id.setdefault(schema_id, found)

    def latest(self, subject: str) -> RegisteredSchema:
        return self.version(subject, "latest")

    def version(self, subject: str, version: int | str) -> RegisteredSchema:
        return self._registered(self._call("GET", f"{_versions(subject)}/{version}"))

    def versions(self, subject: str) -> list[int]:
        found: list[int] = self._call("GET", _versions(subject))
        return found

    def subjects(self, prefix: str = "") -> list[str]:
        """Return the names of the subjects that begin with `prefix`, in order."""
        found: list[str] = self._call(
            "GET", "/subjects" + (f"?subjectPrefix={quote(prefix, safe='')}" if prefix else "")
        )
        return sorted(name for name in found if name.startswith(prefix))

    def compatible(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> Compatibility:
        """Compare a schema with the versions of a subject, by the subject's compatibility level.

        A subject without versions takes any schema.
        """
        path = f"/compatibility{_versions(subject)}{_query(verbose=True, normalize=normalize)}"
        try:
            answer = self._call("POST", path, schema.document())
        except SchemaNotFoundError as error:
            if error.code == _SUBJECT_NOT_FOUND:
                return Compatibility(is_compatible=True)
            raise
        return Compatibility(bool(answer["is_compatible"]), tuple(answer.get("messages") or ()))

    def config(self, subject: str | None = None) -> str:
        """Return the compatibility level of a subject, or of all that have none of their own."""
        if subject is None:
            return str(self._call("GET", "/config")["compatibilityLevel"])
        try:
            answer = self._call("GET", f"/config/{quote(subject, safe='')}?defaultToGlobal=true")
        except SchemaNotFoundError as error:  # registries before 5.4 do not have the parameter
            if error.code in (_SUBJECT_NOT_FOUND, _NO_COMPATIBILITY):
                return self.config()
            raise
        return str(answer["compatibilityLevel"])

    def texts(self, references: tuple[Reference, ...]) -> dict[str, str]:
        """Return the texts of the referenced schemas by name, with those that they refer to, dependencies first."""
        found: dict[str, str] = {}
        for reference in references:
            schema = self.version(reference.subject, reference.version).schema
            found.update(self.texts(schema.references))
            found[reference.name] = schema.text
        return found

    def close(self) -> None:
        self._http.close()

    def _registered(self, answer: Mapping[str, Any]) -> RegisteredSchema:
        schema = SchemaText.of(answer)
        schema_id = int(answer["id"])
        self._by_id.setdefault(schema_id, schema)
        return RegisteredSchema(str(answer["subject"]), int(answer["version"]), schema_id, schema)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        try:
            return self._http.request(method, path, body)
        except RegistryUnreachableError:
            raise
        except RegistryError as error:
            kind = _kind(error.code)
            raise (error if kind is None else kind(str(error), error.code)) from None


def _kind(code: int) -> type[RegistryError] | None:
    if code == 409 or code // 100 == 409:
        return IncompatibleSchemaError
    if code // 100 == 404:
        return SchemaNotFoundError
    return InvalidSchemaError if code == 42201 else None


def _versions(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions"


def _query(**flags: bool) -> str:
    given = "&".join(f"{name}=true" for name, is_set in flags.items() if is_set)
    return f"?{given}" if given else ""
