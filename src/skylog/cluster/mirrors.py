"""The mirrors of this cluster, in the metadata store: the same on every broker at once. See `replication.mirror`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from skylog.cluster.store import Entry, EntryChange, MetadataStore, Value, VersionConflictError

MIRRORS: Final = "/mirrors/"

Listener = Callable[[Mapping[str, Value]], None]
"""Called with all mirrors by name, whenever one has changed."""

Decision = Callable[[Value | None], Value | None]
"""Returns the new value of a mirror, None to remove it, or the same object to leave it. May be called several times."""


class StoredMirrors:
    """The values of mirrors by name. `follow` them before the first change."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._entries: dict[str, Entry] = {}
        self._listener: Listener | None = None

    async def follow(self, listener: Listener) -> None:
        """Call `listener` with the mirrors now, and after every change."""
        self._listener = listener
        await self._store.watch(MIRRORS, self._update)

    def _update(self, changed: Mapping[str, Entry | None]) -> None:
        for path, entry in changed.items():
            if entry is None:
                self._entries.pop(path, None)
            else:
                self._entries[path] = entry
        if self._listener is not None:
            self._listener({_name(path): entry.value for path, entry in self._entries.items()})

    async def change(self, name: str, decide: Decision) -> None:
        """Replace a mirror by what `decide` makes of it, and decide again if it changes meanwhile."""
        path = MIRRORS + quote(name, safe="")
        while True:
            entry = (await self._store.load(path)).get(path)
            before = entry.value if entry is not None else None
            value = decide(before)
            if value is before or value == before:
                return
            version = entry.version if entry is not None else 0
            try:
                await self._store.commit([EntryChange(path, value, version)])
            except VersionConflictError:
                continue
            self._update({path: Entry(value, version + 1) if value is not None else None})
            return


def _name(path: str) -> str:
    return unquote(path.removeprefix(MIRRORS))
