"""How configuration is shown to clients: values in force, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from skylog.broker.config import NodeFacts, ServerConfig, find_broker_key
from skylog.config import Setting, UpdateMode, parse, settings
from skylog.storage import LogConfig

TYPE_CODES: Final = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
NODE_ID: Final = "node.id"


class Resource(IntEnum):
    """What may have a configuration, in Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class Source(IntEnum):
    """Where a value comes from, in Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class Synonym(NamedTuple):
    key: str
    value: str
    source: Source


class DescribedConfig(NamedTuple):
    """One key with its value in force. `synonyms` are all the places that have a value, the one in force first."""

    key: str
    value: str | None
    source: Source
    read_only: bool
    setting: Setting
    synonyms: list[Synonym]


def describe_topic(server: ServerConfig, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Every topic key: the topic's own value, the broker's, or Kafka's default."""
    effective = parse(LogConfig, overrides, server.log)
    rows = []
    for key, known in sorted(settings(LogConfig).items()):
        value = known.format(getattr(effective, known.field))
        synonyms = [Synonym(key, value, Source.TOPIC)] if key in overrides else []
        if known.broker_key:
            synonyms += _broker_synonyms(server, known, known.broker_key)
        rows.append(_described(known, key, value, synonyms, read_only=False))
    return rows


def describe_broker(server: ServerConfig, facts: NodeFacts) -> list[DescribedConfig]:
    """Every broker key: as it was set at run time or at the start, or Kafka's default."""
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
    rows += [_fact(known, known.format(getattr(facts, known.field))) for known in settings(NodeFacts).values()]
    rows.append(_fact(find_broker_key(NODE_ID)[1], str(facts.broker_id)))
    return sorted(rows, key=lambda row: row.key)


def describe_all_brokers(server: ServerConfig) -> list[DescribedConfig]:
    """The keys that were set at run time for all brokers."""
    rows = []
    for key, value in sorted(server.cluster.items()):
        known = find_broker_key(key)[1]
        synonyms = [Synonym(key, value, Source.DYNAMIC_DEFAULT_BROKER)]
        rows.append(_described(known, key, value, synonyms, read_only=False))
    return rows


def _fact(known: Setting, value: str) -> DescribedConfig:
    return _described(known, known.key, value, [Synonym(known.key, value, Source.STATIC_BROKER)], read_only=True)


def _described(known: Setting, key: str, value: str, synonyms: list[Synonym], *, read_only: bool) -> DescribedConfig:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return DescribedConfig(key, _told(known, value), source, read_only, known, synonyms)


def _normal(known: Setting, text: str) -> str:
    return known.format(known.parse(text))


def _told(known: Setting, value: str) -> str | None:
    """A text that is not set is null, as in Kafka."""
    return None if known.kind == "string" and not value else value


def _broker_synonyms(server: ServerConfig, known: Setting, key: str) -> list[Synonym]:
    """Every value that a broker's key has, the one in force first."""
    sources: list[tuple[Mapping[str, Any], Source]] = [
        (server.own, Source.DYNAMIC_BROKER),
        (server.cluster, Source.DYNAMIC_DEFAULT_BROKER),
        (server.given, Source.STATIC_BROKER),
    ]
    found = [Synonym(key, _normal(known, values[key]), source) for values, source in sources if key in values]
    default = _told(known, known.format(known.default))
    return found if default is None else [*found, Synonym(key, default, Source.DEFAULT)]
