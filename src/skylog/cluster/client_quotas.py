"""The client quotas, in the metadata store: the same on every broker at once. There is one entry per entity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from skylog.cluster.store import Entry, EntryChange, MetadataStore, VersionConflictError

QUOTAS: Final = "/quotas/"

StoredEntity = tuple[tuple[str, str | None], ...]
"""The types of an entity with their names; None is the default of a type."""

AllQuotas = Mapping[StoredEntity, Mapping[str, float]]
Listener = Callable[[AllQuotas], None]
"""Called with the entities that have changed; one without quotas was removed."""


class StoredQuotas:
    """The quotas by entity."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._listener: Listener | None = None

    async def follow(self, listener: Listener) -> None:
        """Call `listener` with all quotas, and with every change from then on."""
        self._listener = listener
        await self._store.watch(QUOTAS, self._update)

    async def load(self) -> dict[StoredEntity, dict[str, float]]:
        return {_entity(path): entry.value["quotas"] for path, entry in (await self._store.load(QUOTAS)).items()}

    async def change(self, decide: Callable[[AllQuotas], AllQuotas]) -> None:
        """Store what `decide` makes of the present quotas: those of the entities that change, in one commit.

        It may be called several times. What it raises leaves everything as it was.
        """
        while True:
            entries = await self._store.load(QUOTAS)
            changed = decide({_entity(path): entry.value["quotas"] for path, entry in entries.items()})
            operations = []
            after: dict[str, Entry | None] = {}
            for entity, quotas in changed.items():
                path = _path(entity)
                before = entries.get(path)
                if dict(quotas) == (before.value["quotas"] if before is not None else {}):
                    continue
                version = before.version if before is not None else 0
                value = {"quotas": dict(quotas)} if quotas else None
                operations.append(EntryChange(path, value, version))
                after[path] = Entry(value, version + 1) if value is not None else None
            if not operations:
                return
            try:
                await self._store.commit(operations)
            except VersionConflictError:
                continue
            self._update(after)  # the store reports it, too, but maybe later
            return

    def _update(self, changed: Mapping[str, Entry | None]) -> None:
        if self._listener is not None:
            self._listener(
                {_entity(path): entry.value["quotas"] if entry is not None else {} for path, entry in changed.items()}
            )


def _path(entity: StoredEntity) -> str:
    """Return the path of an entity: `user=alice&client-id`, where the second one is the default of its type."""
    return QUOTAS + "&".join(kind if name is None else f"{kind}={quote(name, safe='')}" for kind, name in entity)


def _entity(path: str) -> StoredEntity:
    parts = (part.partition("=") for part in path.removeprefix(QUOTAS).split("&"))
    return tuple((kind, unquote(name) if equals else None) for kind, equals, name in parts)
