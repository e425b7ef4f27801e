"""The configuration of this broker as it changes at run time (KIP-226).

A change is checked as a whole, stored, and then applied, so what a client was acknowledged survives a restart. What is
stored but no longer fits, after a downgrade for example, is logged and left out: a broker must start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from skylog.broker.config import ServerConfig, check_dynamic
from skylog.cluster.broker_configs import ALL_BROKERS, BrokerConfigs
from skylog.errors import ConfigError, ErrorCode, KafkaError

logger = logging.getLogger(__name__)

Apply = Callable[[ServerConfig], Awaitable[None]]
"""Puts a configuration into force."""

Alter = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From what is set for a broker to what is to be set."""


class DynamicConfigs:
    """The only way to change a running broker's configuration. Lives on the event loop; one change at a time."""

    def __init__(self, static: ServerConfig, stored: BrokerConfigs, node_id: int, apply: Apply) -> None:
        self._static = static
        self._stored = stored
        self._name = str(node_id)
        self._apply = apply
        self._changing = asyncio.Lock()

    async def load(self) -> ServerConfig:
        """The configuration to start with: what was set for the start and at run time."""
        await self._stored.load()
        return self._static.with_dynamic(self._usable(ALL_BROKERS), self._usable(self._name))

    def _usable(self, name: str) -> dict[str, str]:
        """What is stored for `name` and fits."""
        usable = {}
        for key, value in self._stored.get(name).items():
            try:
                check_dynamic(key, for_one_broker=name != ALL_BROKERS)
                self._static.with_dynamic({}, {key: value})
            except ConfigError as error:
                logger.error("a stored configuration is left out: %s", error)
            else:
                usable[key] = value
        return usable

    def check_name(self, name: str) -> None:
        """Raise INVALID_REQUEST unless `name` is this broker or stands for all of them."""
        if name not in (ALL_BROKERS, self._name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {self._name}, not '{name}'")

    async def alter(self, name: str, change: Alter, *, validate_only: bool) -> None:
        """Change what is set for this broker or for all. Raises KafkaError, with nothing changed.

        As in Kafka what does not fit is INVALID_REQUEST here, not INVALID_CONFIG as for topics.
        """
        self.check_name(name)
        async with self._changing:
            configs = change(self._usable(name))
            config = self._checked(name, configs)
            if validate_only:
                return
            await self._stored.put(name, configs)
            logger.info("configuration of %s is now %s", f"broker {name}" if name else "all brokers", dict(configs))
            await self._apply(config)

    def _checked(self, name: str, configs: Mapping[str, str]) -> ServerConfig:
        """The whole configuration with `configs` in it."""
        cluster = configs if name == ALL_BROKERS else self._usable(ALL_BROKERS)
        own = configs if name != ALL_BROKERS else self._usable(self._name)
        try:
            for key in configs:
                check_dynamic(key, for_one_broker=name != ALL_BROKERS)
            self._static.with_dynamic(configs, {})  # also what `own` hides must fit
            config = self._static.with_dynamic(cluster, own)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        conflict = config.log.conflict()
        if conflict is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, conflict)
        return config
