"""The frames between a `SharedSession` and the server of its store: four bytes of length, then JSON.

The client begins each connection with a hello: `{"name", "timeout_ms", "session", "seen"}`, where `session` is null for
a new session. The server answers `{"session"}`, or `{"expired"}` if it has no such session. It sends `{"expired"}` also
later, when a session expires that is connected.

    client   {"id": 7, "seen": 12, "do": "load" | "watch", "prefix"}
             {"id": 8, "seen": 12, "do": "commit", "operations"}
             {"id": 9, "seen": 12, "do": "ping" | "close"}
    server   {"number": 13, "id": 7, "entries"}      a load; for a watch, the entries and later each change
             {"number": 14, "id": 8, "conflict"}     a commit; `conflict` is a path, or missing
             {"number": 15, "id": 9}

Both directions survive the loss of a connection. Requests have ascending ids, and the client repeats unanswered ones
after it has reconnected. The server skips those it knows: it has answered them, or will. The frames of the server are
numbered, and it repeats those after `seen`, the last number that the client has received. So each request is executed
once, and each answer and change arrives once and in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from skylog.cluster.store import Entry, EntryChange, Operation, Value, VersionCheck

_LENGTH_BYTES: Final = 4


def encode(document: Value) -> bytes:
    text = orjson.dumps(document)
    return len(text).to_bytes(_LENGTH_BYTES, "big") + text


async def read_frame(reader: asyncio.StreamReader) -> Value:
    """Raises EOFError or OSError at the end of the connection."""
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    document: Value = orjson.loads(await reader.readexactly(length))
    return document


def entry_rows(entries: Mapping[str, Entry | None]) -> Value:
    return {path: None if entry is None else [entry.value, entry.version] for path, entry in entries.items()}


def read_entries(rows: Mapping[str, Any]) -> dict[str, Entry | None]:
    return {path: None if row is None else Entry(*row) for path, row in rows.items()}


def operation_rows(operations: Iterable[Operation]) -> list[Sequence[Any]]:
    return [tuple(operation) for operation in operations]


def read_operations(rows: Iterable[Sequence[Any]]) -> list[Operation]:
    return [VersionCheck(*row) if len(row) == len(VersionCheck._fields) else EntryChange(*row) for row in rows]
