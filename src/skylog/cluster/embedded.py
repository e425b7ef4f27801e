"""The metadata store of a standalone broker: one JSON file in its data directory.

Each commit replaces the file atomically and durably, off the event loop. After a crash the file has the state before
or after a commit. A commit that has returned is on disk. Ephemeral entries are not in the file, because no session
outlives the process. Without a directory there is no file, and the entries are only in memory. Only the owner may read
the file: it has the credentials of users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson

from skylog.cluster.store import (
    Entry,
    Operation,
    SessionExpiredError,
    Value,
    VersionCheck,
    VersionConflictError,
    Watcher,
)
from skylog.durable_files import replace_file
from skylog.errors import ErrorCode, KafkaError, SkylogError

FILE_NAME: Final = "metadata.json"
_FORMAT: Final = 1

Entries = dict[str, Entry]


class EmbeddedStore:
    """The entries of one file, shared by the sessions of one event loop. `directory` is None for a store in memory."""

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / FILE_NAME
        self.is_shared = directory is None  # a file belongs to one broker
        self.is_new = self._path is None or not self._path.exists()
        self._entries = {} if self._path is None else _read(self._path)
        self._owners: dict[str, EmbeddedSession] = {}  # the sessions of ephemeral entries
        self._sessions: list[EmbeddedSession] = []
        self._writing = asyncio.Lock()

    def open_session(self) -> EmbeddedSession:
        session = EmbeddedSession(self)
        self._sessions.append(session)
        return session

    def entries(self, prefix: str) -> Entries:
        return {path: entry for path, entry in self._entries.items() if path.startswith(prefix)}

    async def commit(self, session: EmbeddedSession, operations: Sequence[Operation]) -> None:
        async with self._writing:
            session.check()
            entries, owners = dict(self._entries), dict(self._owners)
            for operation in operations:
                _apply(operation, session, entries, owners)
            await self._replace(entries, owners)

    async def end(self, session: EmbeddedSession) -> None:
        """Remove a session and its ephemeral entries. Waits for a running commit."""
        async with self._writing:
            if session in self._sessions:
                self._sessions.remove(session)
                owners = {path: owner for path, owner in self._owners.items() if owner is not session}
                gone = self._owners.keys() - owners.keys()
                await self._replace({path: each for path, each in self._entries.items() if path not in gone}, owners)

    async def _replace(self, entries: Entries, owners: dict[str, EmbeddedSession]) -> None:
        """Write the new state, unless only ephemeral entries changed, and call the watchers."""
        before = self._entries
        changed: dict[str, Entry | None] = dict.fromkeys(before.keys() - entries.keys())
        changed |= {path: entry for path, entry in entries.items() if before.get(path) is not entry}
        lasting = _without_ephemeral(entries, owners)
        if self._path is not None and lasting != _without_ephemeral(before, self._owners):
            try:
                await asyncio.get_running_loop().run_in_executor(None, _write, self._path, lasting)
            except OSError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write {self._path}: {error}") from error
        self._entries, self._owners = entries, owners
        for session in tuple(self._sessions):
            session.publish(changed)


class EmbeddedSession:
    """A `MetadataStore`: one session with an `EmbeddedStore`."""

    max_commit_bytes = None

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.is_shared = store.is_shared
        self._has_ended = False
        self._watchers: list[tuple[str, Watcher]] = []
        self._expiry_listeners: list[Callable[[], None]] = []

    async def load(self, prefix: str) -> Entries:
        self.check()
        return self._store.entries(prefix)

    async def commit(self, operations: Sequence[Operation]) -> None:
        await self._store.commit(self, operations)

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        self.check()
        watcher(self._store.entries(prefix))
        self._watchers.append((prefix, watcher))

    def on_expiry(self, listener: Callable[[], None]) -> None:
        self._expiry_listeners.append(listener)

    async def close(self) -> None:
        await self._store.end(self)
        self._has_ended = True

    async def expire(self) -> None:
        """Expire the session, as a distributed store does after a session timeout."""
        await self.close()
        for listener in self._expiry_listeners:
            listener()

    def check(self) -> None:
        if self._has_ended:
            raise SessionExpiredError("the session with the metadata store has ended")

    def publish(self, changed: Mapping[str, Entry | None]) -> None:
        for prefix, watcher in self._watchers:
            found = {path: entry for path, entry in changed.items() if path.startswith(prefix)}
            if found:
                watcher(found)


def _apply(
    operation: Operation, session: EmbeddedSession, entries: Entries, owners: dict[str, EmbeddedSession]
) -> None:
    path = operation.path
    present = entries.get(path)
    if (present.version if present else 0) != operation.expected_version:
        raise VersionConflictError(path)
    if isinstance(operation, VersionCheck):
        return
    if operation.value is None:
        entries.pop(path, None)
        owners.pop(path, None)
    else:
        entries[path] = Entry(operation.value, operation.expected_version + 1)
        if operation.ephemeral and present is None:
            owners[path] = session


def _without_ephemeral(entries: Entries, owners: Mapping[str, EmbeddedSession]) -> Entries:
    return {path: entry for path, entry in entries.items() if path not in owners}


def _write(path: Path, entries: Entries) -> None:
    rows: dict[str, Value] = {
        name: {"version": entry.version, "value": entry.value} for name, entry in sorted(entries.items())
    }
    replace_file(path, orjson.dumps({"format": _FORMAT, "entries": rows}, option=orjson.OPT_INDENT_2), private=True)


def _read(path: Path) -> Entries:
    try:
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except orjson.JSONDecodeError as error:
        raise SkylogError(f"{path} is damaged: {error}; restore it from a backup") from error
    if document.get("format") != _FORMAT:
        raise SkylogError(f"{path} has format {document.get('format')}; this version reads format {_FORMAT}")
    return {name: Entry(row["value"], row["version"]) for name, row in document["entries"].items()}
