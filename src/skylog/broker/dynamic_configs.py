"""Broker settings that change at run time (KIP-226).

A change is validated as a whole, stored, and then applied, so an acknowledged change survives a restart. A broker also
applies changes that were made through others, as soon as the metadata store reports them. A stored setting that is no
longer valid, after a downgrade for example, is logged and ignored, so that the broker starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from skylog.broker.config import ServerConfig, check_dynamic, shown
from skylog.cluster.broker_configs import ALL_BROKERS, BrokerConfigs
from skylog.errors import ConfigError, ErrorCode, KafkaError

logger = logging.getLogger(__name__)

Apply = Callable[[ServerConfig], Awaitable[None]]
"""Applies a configuration to the running broker."""

Check = Callable[[ServerConfig], None]
"""Raises ConfigError if a configuration of this broker cannot be applied, such as keys that do not fit together."""

Alter = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the new settings of a broker, given the present ones."""


class DynamicConfigs:
    """Changes a running broker's configuration, one change at a time. Use it on the event loop only.

    `failures` counts changes that could not be applied.
    """

    def __init__(
        self,
        static: ServerConfig,
        stored: BrokerConfigs,
        node_id: int,
        is_broker: Callable[[str], bool],
        apply: Apply,
        check: Check,
    ) -> None:
        self._static = self._applied = static
        self._stored = stored
        self._name = str(node_id)
        self._is_broker = is_broker
        self._apply = apply
        self._check_applicable = check
        self._changing = asyncio.Lock()
        self._has_changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self.failures = 0

    async def load(self) -> ServerConfig:
        """Return the configuration to start with: the startup settings and the stored ones."""
        await self._stored.load(self._has_changed.set)
        self._applied = self._effective()
        return self._applied

    def start(self) -> None:
        """Apply what other brokers have changed, from now on."""
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            try:
                async with self._changing:
                    await self._apply_stored()
            except Exception:
                self.failures += 1
                logger.exception("a change of the configuration could not be applied")

    async def _apply_stored(self) -> None:
        config = self._effective()
        if config != self._applied:
            logger.info(
                "settings at run time: %s for all brokers, %s here",
                shown(config.cluster_wide),
                shown(config.per_broker),
            )
            await self._apply(config)
            self._applied = config

    def _effective(self) -> ServerConfig:
        cluster_wide, per_broker = self._stored.get(ALL_BROKERS), self._stored.get(self._name)
        return self._static.with_dynamic(self._usable(ALL_BROKERS, cluster_wide), self._usable(self._name, per_broker))

    def _usable(self, name: str, stored: Mapping[str, str]) -> dict[str, str]:
        """Return the stored settings of `name` that are valid."""
        usable = {}
        for key, value in stored.items():
            try:
                check_dynamic(key, for_one_broker=name != ALL_BROKERS)
                self._static.with_dynamic({}, {key: value})
            except ConfigError as error:
                logger.error("ignoring a stored setting that is not valid: %s", error)
            else:
                usable[key] = value
        return usable

    def check_name(self, name: str) -> None:
        """Raise INVALID_REQUEST unless `name` is this broker's id, or empty for all brokers."""
        if name not in (ALL_BROKERS, self._name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {self._name}, not '{name}'")

    async def alter(self, name: str, change: Alter, *, validate_only: bool) -> None:
        """Change the settings of a broker or of all brokers. Raises KafkaError if nothing was changed.

        As in Kafka, an invalid setting is INVALID_REQUEST here, not INVALID_CONFIG as for topics.
        """
        if name not in (ALL_BROKERS, self._name) and not self._is_broker(name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no broker '{name}'")

        def decide(stored: Mapping[str, str]) -> Mapping[str, str]:
            configs = change(self._usable(name, stored))
            self._check(name, configs)
            return configs

        if validate_only:
            decide(self._stored.get(name))
            return
        async with self._changing:
            await self._stored.change(name, decide)
            await self._apply_stored()

    def _check(self, name: str, configs: Mapping[str, str]) -> None:
        """Raise INVALID_REQUEST unless these can be the settings of `name`.

        The startup settings of another broker are not known here; those of this one stand for them.
        """
        cluster_wide = configs if name == ALL_BROKERS else self._usable(ALL_BROKERS, self._stored.get(ALL_BROKERS))
        per_broker = configs if name != ALL_BROKERS else self._usable(self._name, self._stored.get(self._name))
        try:
            for key in configs:
                check_dynamic(key, for_one_broker=name != ALL_BROKERS)
            self._static.with_dynamic(configs, {})  # values that `per_broker` overrides must be valid, too
            config = self._static.with_dynamic(cluster_wide, per_broker)
            if name == self._name:
                self._check_applicable(config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        conflict = config.log.conflict()
        if conflict is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, conflict)
