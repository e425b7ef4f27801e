"""Describes configuration for clients: the effective values of topics and brokers, and their sources."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from skylog.broker.config import DerivedConfig, ServerConfig, find_broker_key
from skylog.config import Setting, UpdateMode, parse, settings
from skylog.storage import LogConfig

TYPE_CODES: Final = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7, "password": 9}
NODE_ID: Final = "node.id"


class ResourceType(IntEnum):
    """Kinds of resources that have a configuration, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigSource(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class Synonym(NamedTuple):
    key: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """A key with its effective value. `synonyms` are all values that are set for it, the effective one first."""

    key: str
    value: str | None
    source: ConfigSource
    read_only: bool
    setting: Setting
    synonyms: list[Synonym]


def describe_topic(server: ServerConfig, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Describe every topic key: the topic's value, the broker's, or the default."""
    effective = parse(LogConfig, overrides, server.log)
    rows = []
    for key, known in sorted(settings(LogConfig).items()):
        value = known.format(getattr(effective, known.field))
        synonyms = [Synonym(key, value, ConfigSource.TOPIC)] if key in overrides else []
        if known.broker_key:
            synonyms += _broker_synonyms(server, known, known.broker_key)
        rows.append(_described(known, key, value, synonyms, read_only=False))
    return rows


def describe_broker(server: ServerConfig, derived: DerivedConfig) -> list[DescribedConfig]:
    """Describe every broker key: the value set at run time, the one given at startup, or the default."""
    rows = [
        _described(
            known,
            key,
            known.format(value),
            _broker_synonyms(server, known, key),
            read_only=known.update_mode is UpdateMode.READ_ONLY,
        )
        for key, (known, value) in server.effective().items()
        if key != NODE_ID
    ]
    rows += [_of_listener(server, key) for key in server.of_listeners()]
    rows += [_derived(known, known.format(getattr(derived, known.field))) for known in settings(DerivedConfig).values()]
    rows.append(_derived(find_broker_key(NODE_ID)[1], str(derived.broker_id)))
    return sorted(rows, key=lambda row: row.key)


def _of_listener(server: ServerConfig, key: str) -> DescribedConfig:
    """Describe a key that is set for one listener. Without a value it would be that of the whole broker."""
    known = find_broker_key(key)[1]
    synonyms = [each for each in _broker_synonyms(server, known, key) if each.source is not ConfigSource.DEFAULT]
    is_read_only = known.update_mode is UpdateMode.READ_ONLY
    return _described(known, key, synonyms[0].value or "", synonyms, read_only=is_read_only)


def describe_all_brokers(server: ServerConfig) -> list[DescribedConfig]:
    """Describe the keys that were set at run time for all brokers."""
    rows = []
    for key, value in sorted(server.cluster_wide.items()):
        known = find_broker_key(key)[1]
        synonyms = [Synonym(key, None if known.is_secret else value, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
        rows.append(_described(known, key, value, synonyms, read_only=False))
    return rows


def _derived(known: Setting, value: str) -> DescribedConfig:
    return _described(known, known.key, value, [Synonym(known.key, value, ConfigSource.STATIC_BROKER)], read_only=True)


def _described(known: Setting, key: str, value: str, synonyms: list[Synonym], *, read_only: bool) -> DescribedConfig:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return DescribedConfig(key, _null_if_unset(known, value), source, read_only, known, synonyms)


def _normal(known: Setting, text: str) -> str | None:
    return None if known.is_secret else known.format(known.parse(text))


def _null_if_unset(known: Setting, value: str) -> str | None:
    """Return None for an empty string, which Kafka reports as null, and for every secret."""
    return None if known.is_secret or (known.kind == "string" and not value) else value


def _broker_synonyms(server: ServerConfig, known: Setting, key: str) -> list[Synonym]:
    """Return every value that is set for a broker key, the effective one first."""
    sources: list[tuple[Mapping[str, Any], ConfigSource]] = [
        (server.per_broker, ConfigSource.DYNAMIC_BROKER),
        (server.cluster_wide, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (server.static, ConfigSource.STATIC_BROKER),
    ]
    found = [Synonym(key, _normal(known, values[key]), source) for values, source in sources if key in values]
    default = _null_if_unset(known, known.format(known.default))
    return found if default is None else [*found, Synonym(key, default, ConfigSource.DEFAULT)]
