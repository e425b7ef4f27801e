"""A request to the API: its subject, version, flags and body, and how a change is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import orjson
from starlette.requests import Request
from starlette.responses import Response

from skylog.metric import Metric
from skylog.registry.changes import Change
from skylog.registry.errors import RegistryError, invalid_schema, invalid_version, too_large, unprocessable
from skylog.registry.log.writer import MAX_RECORD_BYTES
from skylog.registry.records import DEFAULT_KIND
from skylog.registry.registry import Registry
from skylog.registry.rest.forwarding import FORWARDED, POSITION, Forwarder
from skylog.registry.rest.forwarding import Request as ForwardedRequest
from skylog.registry.schemas import GivenSchema
from skylog.registry.state import RegistryState
from skylog.registry.subjects import DEFAULT_CONTEXT, check_characters, context_of, qualify
from skylog.schemas import Reference

T = TypeVar("T")

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_VERSION: Final = 2**31 - 1
MAX_DIGITS: Final = 100
LATEST: Final = "latest"
CONTEXT: Final = "skylog_registry_context"
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_UNSUPPORTED: Final = ("metadata", "ruleSet")


def answer(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(document), status, headers, CONTENT_TYPE)


class Call:
    """One request. `make` changes something: here, or by the registry that is elected to write."""

    def __init__(
        self, request: Request, registry: Registry, forwarder: Forwarder, metrics: Callable[[], list[Metric]]
    ) -> None:
        self.registry, self.metrics = registry, metrics
        self._request, self._forwarder = request, forwarder
        self._body = b""

    async def read_body(self) -> None:
        data = bytearray()
        async for chunk in self._request.stream():
            data += chunk
            if len(data) > MAX_BODY_BYTES:
                raise RegistryError(413, f"the request is larger than {MAX_BODY_BYTES} bytes")
        self._body = bytes(data)

    @property
    def state(self) -> RegistryState:
        return self.registry.state

    # -- path and query

    def path(self, name: str) -> str:
        return unquote(self._request.path_params[name])

    @property
    def context(self) -> str:
        """The context in the path, `.` without one."""
        return str(self._request.scope.get(CONTEXT, DEFAULT_CONTEXT))

    @property
    def context_name(self) -> str | None:
        """The name under which the context in the path keeps its config and mode; None for the default one."""
        return None if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    @property
    def has_subject(self) -> bool:
        return "subject" in self._request.path_params

    def subject(self) -> str:
        """Return the subject in the path, with the context in the path. Raises RegistryError."""
        name = self.path("subject")
        check_characters(name)
        return qualify(name, self.context)

    def context_of_query(self) -> str:
        """Return the context of the subject in the query, which may name one only for this; or that of the path."""
        given = self.text("subject")
        return context_of(qualify(given, self.context)) if given else self.context

    def version(self) -> int | None:
        """Return the version in the path, None for the latest. Raises RegistryError."""
        text = self.path("version")
        if text in (LATEST, "-1"):
            return None
        if not (_is_number(text) and 1 <= int(text) <= MAX_VERSION):
            raise invalid_version(text)
        return int(text)

    def number(self, name: str) -> int:
        """Return a number in the path. Raises RegistryError."""
        text = self.path(name)
        if not (_is_number(text) and int(text) <= MAX_VERSION):
            raise RegistryError(404, "HTTP 404 Not Found")
        return int(text)

    def text(self, name: str, default: str = "") -> str:
        return self._request.query_params.get(name, default)

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def page(self, rows: Sequence[T]) -> list[T]:
        """Return the rows that `offset` and `limit` choose. A limit of -1 means all."""
        offset, limit = self._bound("offset", 0), self._bound("limit", -1)
        return list(rows[max(offset, 0) :] if limit < 0 else rows[max(offset, 0) : max(offset, 0) + limit])

    def _bound(self, name: str, default: int) -> int:
        try:
            return int(self.text(name, str(default)))
        except ValueError:
            raise RegistryError(400, f"'{name}' must be a number, not '{self.text(name)}'") from None

    # -- the body

    def body(self) -> dict[str, Any]:
        """Return the body, a JSON object. Raises RegistryError."""
        try:
            found = orjson.loads(self._body)
        except ValueError as error:
            raise RegistryError(400, f"the request is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise unprocessable("expected a JSON object")
        return found

    def schema(self) -> GivenSchema:
        """Return the schema in the body. Raises RegistryError."""
        given = self.body()
        for name in _UNSUPPORTED:
            if given.get(name):
                raise unprocessable(f"this registry does not support '{name}' of a schema; leave it out")
        text, kind = given.get("schema"), given.get("schemaType") or DEFAULT_KIND
        if not isinstance(text, str) or not text.strip() or not isinstance(kind, str):
            raise invalid_schema("Empty schema")
        if len(text) > MAX_RECORD_BYTES:  # it could not be stored, so it is not parsed
            raise too_large(MAX_RECORD_BYTES)
        return GivenSchema(
            kind.upper(),
            text,
            _references(given.get("references")),
            _positive(given, "id"),
            _positive(given, "version"),
        )

    # -- changes

    async def make(self, decide: Callable[[], Awaitable[Change]]) -> Response:
        """Make a change, and answer it when this registry has it. Raises RegistryError."""
        scope = self._request.scope
        path = scope["raw_path"].decode("ascii")
        query = scope["query_string"].decode("ascii")
        headers = self._request.headers
        original = ForwardedRequest(
            scope["method"],
            f"{path}?{query}" if query else path,
            {name: headers[name] for name in ("authorization", "content-type", "accept") if name in headers},
            self._body,
        )
        made = await self._forwarder.make(decide, original, is_forwarded=FORWARDED in headers)
        if isinstance(made, Change):
            return answer(made.answer, headers={POSITION: str(self.registry.position)})
        if made.position is not None:
            await self.registry.reach(made.position)
        return Response(made.body, made.status, {}, CONTENT_TYPE)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _references(given: Any) -> tuple[Reference, ...]:
    try:
        found = [(each["name"], each["subject"], each["version"]) for each in given or ()]
    except (KeyError, TypeError):
        raise unprocessable("each of 'references' needs a name, a subject and a version") from None
    for name, subject, version in found:
        if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
            raise unprocessable("each of 'references' needs a name, a subject and a version that is a number")
    return tuple(Reference(*each) for each in found)


def _positive(given: dict[str, Any], name: str) -> int | None:
    """Return a number of the body; None if it is missing, or 0 or -1, which mean that the registry chooses."""
    found = given.get(name)
    if not isinstance(found, int | None) or isinstance(found, bool) or (found is not None and found > MAX_VERSION):
        raise unprocessable(f"'{name}' must be a number")
    return None if found is None or found <= 0 else found
