"""The configuration that brokers were given at run time: for each by its id, and for all of them.

Kept in the metadata store, one entry per broker; the entry for all brokers has the name that Kafka gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skylog.cluster.store import Change, MetadataStore, VersionConflictError
from skylog.errors import ErrorCode, KafkaError

BROKER_CONFIGS: Final = "/configs/brokers/"
ALL_BROKERS: Final = ""
_ALL_BROKERS_PATH: Final = BROKER_CONFIGS + "<default>"


class BrokerConfigs:
    """What the store has for each broker's id, and for `ALL_BROKERS`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._configs: dict[str, Mapping[str, str]] = {}
        self._versions: dict[str, int] = {}

    async def load(self) -> None:
        for path, entry in (await self._store.load(BROKER_CONFIGS)).items():
            name = ALL_BROKERS if path == _ALL_BROKERS_PATH else path.removeprefix(BROKER_CONFIGS)
            self._configs[name] = entry.value["configs"]
            self._versions[name] = entry.version

    def get(self, name: str) -> Mapping[str, str]:
        return self._configs.get(name, {})

    async def put(self, name: str, configs: Mapping[str, str]) -> None:
        """Store all that is set for `name`, in place of what was. Raises KafkaError."""
        path = BROKER_CONFIGS + name if name != ALL_BROKERS else _ALL_BROKERS_PATH
        version = self._versions.get(name, 0)
        try:
            await self._store.commit([Change(path, {"configs": dict(configs)}, version)])
        except VersionConflictError:
            reason = "the broker configuration was changed at the same time, try again"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason) from None
        self._configs[name] = dict(configs)
        self._versions[name] = version + 1
