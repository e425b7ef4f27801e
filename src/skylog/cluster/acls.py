"""The access control lists, in the metadata store: the same on every broker at once.

There is one entry per resource pattern, with all of its rules, so the rules of a pattern change together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from skylog.cluster.store import Entry, EntryChange, MetadataStore, VersionConflictError

ACLS: Final = "/acls/"


class StoredResource(NamedTuple):
    """A resource pattern: the names of its type and of its pattern type, and the name or prefix."""

    type: str
    pattern: str
    name: str


Rules = list[dict[str, str]]
AllRules = Mapping[StoredResource, Rules]
Listener = Callable[[AllRules], None]
"""Called with the patterns that have changed; a pattern without rules was removed."""


class StoredAcls:
    """The rules by resource pattern. `follow` them before the first change."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._listener: Listener | None = None

    async def follow(self, listener: Listener) -> None:
        """Call `listener` with all rules, and with every change from then on."""
        self._listener = listener
        await self._store.watch(ACLS, self._update)

    async def load(self) -> dict[StoredResource, Rules]:
        return {_resource(path): entry.value["rules"] for path, entry in (await self._store.load(ACLS)).items()}

    async def change(self, decide: Callable[[AllRules], AllRules]) -> None:
        """Replace all rules by what `decide` makes of them, in one commit. It may be called several times."""
        while True:
            entries = await self._store.load(ACLS)
            before = {_resource(path): entry.value["rules"] for path, entry in entries.items()}
            after = decide(before)
            changed: dict[str, Rules] = {}
            for resource in before.keys() | after.keys():
                rules = after.get(resource, [])
                if rules != before.get(resource, []):
                    changed[_path(resource)] = rules
            if not changed:
                return
            versions = {path: entries[path].version if path in entries else 0 for path in changed}
            operations = [
                EntryChange(path, {"rules": rules} if rules else None, versions[path])
                for path, rules in sorted(changed.items())
            ]
            try:
                await self._store.commit(operations)
            except VersionConflictError:
                continue
            self._update(
                {
                    path: Entry({"rules": rules}, versions[path] + 1) if rules else None
                    for path, rules in changed.items()
                }
            )
            return

    def _update(self, changed: Mapping[str, Entry | None]) -> None:
        found = {_resource(path): entry.value["rules"] if entry is not None else [] for path, entry in changed.items()}
        if self._listener is not None:
            self._listener(found)


def _path(resource: StoredResource) -> str:
    return ACLS + quote(":".join(resource), safe="")


def _resource(path: str) -> StoredResource:
    return StoredResource(*unquote(path.removeprefix(ACLS)).split(":", 2))
