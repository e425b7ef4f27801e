"""How configuration is shown to clients and changed by them: values, where they come from, and what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from skylog.broker.config import ServerConfig
from skylog.config import Setting, parse, settings
from skylog.errors import ConfigError, ErrorCode, KafkaError
from skylog.storage import LogConfig

TOPIC: Final = 2
BROKER: Final = 4
TYPE_CODES: Final = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}


class Source(IntEnum):
    """Where a value comes from, in Kafka's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    key: str
    value: str
    source: Source


class DescribedConfig(NamedTuple):
    """One key with its value in force. `synonyms` are all the places that have a value, the one in force first."""

    key: str
    value: str
    source: Source
    setting: Setting
    synonyms: list[Synonym]


def describe_topic(server: ServerConfig, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Every topic key: the topic's own value, the broker's, or Kafka's default."""
    effective = parse(LogConfig, overrides, server.log)
    return [
        _described(
            known,
            key,
            getattr(effective, known.field),
            [
                *([Synonym(key, overrides[key], Source.TOPIC)] if key in overrides else []),
                *_broker_synonyms(server, known, known.broker_key or key, getattr(server.log, known.field)),
            ],
        )
        for key, known in sorted(settings(LogConfig).items())
    ]


def describe_broker(server: ServerConfig) -> list[DescribedConfig]:
    """Every broker key: as it was set at the start, or Kafka's default."""
    return [
        _described(known, key, value, _broker_synonyms(server, known, key, value))
        for key, (known, value) in server.effective().items()
    ]


def _described(known: Setting, key: str, value: Any, synonyms: list[Synonym]) -> DescribedConfig:
    return DescribedConfig(key, known.format(value), synonyms[0].source, known, synonyms)


def _broker_synonyms(server: ServerConfig, known: Setting, key: str, value: Any) -> list[Synonym]:
    given = [Synonym(key, known.format(value), Source.STATIC_BROKER)] if key in server.given else []
    return [*given, Synonym(key, known.format(known.default), Source.DEFAULT)]


def change_configs(
    present: Mapping[str, str], defaults: LogConfig, changes: list[tuple[str, int, str | None]]
) -> dict[str, str]:
    """A topic's overrides after `(key, operation, value)` changes. Raises INVALID_CONFIG or INVALID_REQUEST."""
    keys = [key for key, _, _ in changes]
    if len(set(keys)) != len(keys):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a key stands twice in one request")
    result = dict(present)
    for key, operation, value in changes:
        if operation == Operation.DELETE:
            result.pop(key, None)
            continue
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key}: a value is missing")
        if operation == Operation.SET:
            result[key] = value
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            result[key] = _change_list(result, defaults, key, operation, value)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}: there is no operation {operation}")
    return result


def _change_list(present: Mapping[str, str], defaults: LogConfig, key: str, operation: int, value: str) -> str:
    known = settings(LogConfig).get(key)
    if known is None or known.kind != "list":
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is no list, it can only be set or deleted")
    try:
        items = list(known.parse(present[key]) if key in present else getattr(defaults, known.field))
        changed = known.parse(value)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if operation == Operation.APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return known.format(tuple(items))
