"""Broker settings changed at run time: per broker id, and for all brokers.

The metadata store has one entry per broker. The entry for all brokers has Kafka's name, `<default>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from skylog.cluster.store import Entry, EntryChange, MetadataStore, VersionConflictError

BROKER_CONFIGS: Final = "/configs/brokers/"
ALL_BROKERS: Final = ""
_ALL_BROKERS_PATH: Final = BROKER_CONFIGS + "<default>"

Configs = Mapping[str, str]


class BrokerConfigs:
    """The stored settings of each broker, by its id, and of `ALL_BROKERS`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._entries: dict[str, Entry] = {}
        self._listener: Callable[[], None] = _ignore

    async def load(self, listener: Callable[[], None]) -> None:
        """Load the settings, and call `listener` whenever any broker has changed some."""
        await self._store.watch(BROKER_CONFIGS, self._update)
        self._listener = listener

    def _update(self, changed: Mapping[str, Entry | None]) -> None:
        for path, entry in changed.items():
            if entry is not None and entry.version > self._version(path):
                self._entries[path] = entry
        self._listener()

    def _version(self, path: str) -> int:
        known = self._entries.get(path)
        return known.version if known is not None else 0

    def get(self, name: str) -> Configs:
        return _configs(self._entries.get(_path(name)))

    async def change(self, name: str, decide: Callable[[Configs], Configs]) -> None:
        """Replace all settings of `name` by what `decide` makes of them. Decides again if they change meanwhile."""
        path = _path(name)
        while True:
            entry = (await self._store.load(path)).get(path)
            configs = dict(decide(_configs(entry)))
            changed = Entry({"configs": configs}, (entry.version if entry is not None else 0) + 1)
            try:
                await self._store.commit([EntryChange(path, changed.value, changed.version - 1)])
            except VersionConflictError:
                continue
            self._update({path: changed})  # the store reports it, too, but maybe later
            return


def _path(name: str) -> str:
    return BROKER_CONFIGS + name if name != ALL_BROKERS else _ALL_BROKERS_PATH


def _configs(entry: Entry | None) -> Configs:
    return entry.value["configs"] if entry is not None else {}


def _ignore() -> None:
    """Listen to nothing: the broker has not started."""
