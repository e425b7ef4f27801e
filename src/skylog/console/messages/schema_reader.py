"""Reads schemas from a registry, and decodes messages by them. Blocks: call it in a thread.

A message that begins with a zero byte and the id of a schema of the registry is shown as JSON. If the registry does not
answer, it is not asked again for some seconds, so that a page of messages does not wait for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from skylog.console.messages.json_layout import StoredJson
from skylog.console.messages.payloads import decode_payload
from skylog.console.settings import Settings
from skylog.errors import SkylogError
from skylog.message_document import AnyMessage
from skylog.schemas.framing import PREFIX_BYTES, FrameError, unframe
from skylog.schemas.registry_client import RegistryClient, SchemaNotFoundError
from skylog.schemas.registry_http import (
    TOKEN,
    URL,
    USER_INFO,
    RegistryAddress,
    RegistryHttp,
    RegistryUnreachableError,
)

TIMEOUT_S: Final = 3.0
PAUSE_S: Final = 10.0
CACHED: Final = 1000

Field = Literal["key", "value"]


class Schema(NamedTuple):
    """A schema with the texts that it refers to, by name."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]


class SchemaReader:
    """One per registry; safe in any thread. `request` returns a document of the API, and raises RegistryError."""

    def __init__(self, settings: Settings, now: Callable[[], float] = time.monotonic) -> None:
        access = {URL: settings.registry or ""}
        if settings.registry_user:
            access[USER_INFO] = f"{settings.registry_user}:{settings.registry_password}"
        elif settings.registry_token:
            access[TOKEN] = settings.registry_token
        address = RegistryAddress.of(access)
        self.request = RegistryHttp(address, TIMEOUT_S).request
        self.client = RegistryClient(address, TIMEOUT_S)
        self._now = now
        self._silent_until = 0.0
        self._missing: dict[int, float] = {}
        self._schema = lru_cache(CACHED)(self._read_schema)

    def decode(self, data: bytes | None, limit: int) -> dict[str, Any] | None:
        """Return the id, format and content of a message with the id of a schema; None if it has none."""
        if data is None or len(data) < PREFIX_BYTES or data[0] != 0:
            return None
        try:
            schema_id, payload = unframe(data)
        except FrameError:
            return None
        if self._missing.get(schema_id, 0.0) > self._now() or self._silent_until > self._now():
            return None
        try:
            schema = self._schema(schema_id)
        except SchemaNotFoundError:
            self._note_missing(schema_id)
            return None
        except RegistryUnreachableError as error:
            self._silent_until = self._now() + PAUSE_S
            return {"schema_id": schema_id, "kind": None, "value": None, "problem": str(error)}
        except SkylogError as error:
            return {"schema_id": schema_id, "kind": None, "value": None, "problem": str(error)}
        try:
            text = decode_payload(schema.kind, schema.text, schema.references, bytes(payload))
        except Exception as error:  # libraries raise anything for bytes that do not fit the schema
            problem = f"not a message of schema {schema_id}: {error or type(error).__name__}"
            return {"schema_id": schema_id, "kind": schema.kind, "value": None, "problem": problem}
        shown = StoredJson(text) if len(text) <= limit else f"{text[:limit]}…"
        return {"schema_id": schema_id, "kind": schema.kind, "value": shown, "problem": None}

    def _note_missing(self, schema_id: int) -> None:
        if len(self._missing) >= CACHED:
            self._missing.clear()
        self._missing[schema_id] = self._now() + PAUSE_S

    def _read_schema(self, schema_id: int) -> Schema:
        found = self.client.schema_by_id(schema_id)
        return Schema(found.kind, found.text, tuple(self.client.texts(found.references).items()))


def decoded(registry: SchemaReader | None, message: AnyMessage, limit: int) -> dict[str, Any]:
    """Return the decoded fields of a message, to be added to its row."""
    if registry is None:
        return {}
    found = {"key_decoded": registry.decode(message.key, limit), "value_decoded": registry.decode(message.value, limit)}
    return {name: each for name, each in found.items() if each is not None}
