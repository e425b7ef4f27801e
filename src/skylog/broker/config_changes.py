"""Changes the configuration of topics, brokers and loggers for clients: single keys, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from skylog.broker.config import find_broker_key
from skylog.broker.config_descriptions import ResourceType
from skylog.broker.logger_levels import change_levels
from skylog.config import Setting, settings
from skylog.errors import ConfigError, ErrorCode, KafkaError
from skylog.storage import LogConfig

if TYPE_CHECKING:
    from skylog.broker.broker import Broker


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS: Final = frozenset(Operation)


class ConfigChange(NamedTuple):
    key: str
    operation: int
    value: str | None


Lookup = Callable[[str], tuple[Setting, Any] | None]
"""Returns the setting of a key and its default value, None for an unknown key."""


async def alter(
    broker: Broker, resource_type: int, name: str, changes: Sequence[ConfigChange], *, whole: bool, validate_only: bool
) -> None:
    """Change the settings of a resource; `whole` replaces all of them. Raises KafkaError."""
    check_changes(changes)
    if resource_type == ResourceType.TOPIC:
        await _alter_topic(broker, name, changes, whole, validate_only)
    elif resource_type == ResourceType.BROKER:
        lookup = partial(_broker_lookup, broker)
        await broker.configs.alter(
            name, lambda present: change_configs({} if whole else present, lookup, changes), validate_only=validate_only
        )
    elif resource_type == ResourceType.BROKER_LOGGER and not whole:
        broker.configs.check_name(name)
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "loggers belong to one broker: give the broker's id")
        change_levels(changes, validate_only=validate_only)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} cannot be altered here")


async def _alter_topic(
    broker: Broker, name: str, changes: Sequence[ConfigChange], whole: bool, validate_only: bool
) -> None:
    topic = broker.topics.get(name)
    defaults = broker.config.log

    def lookup(key: str) -> tuple[Setting, Any] | None:
        known = settings(LogConfig).get(key)
        return None if known is None else (known, getattr(defaults, known.field))

    def changed(present: Mapping[str, str]) -> dict[str, str]:
        return change_configs({} if whole else present, lookup, changes)

    if validate_only:
        broker.topics.check_configs(name, changed(topic.configs))
    else:
        await broker.topics.configure(topic, changed)


def _broker_lookup(broker: Broker, key: str) -> tuple[Setting, Any] | None:
    try:
        return find_broker_key(key)[1], broker.config.value_of(key)
    except ConfigError:
        return None


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Raise INVALID_REQUEST for repeated keys, unknown operations and missing values."""
    if len({change.key for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a key appears more than once in the request")
    for key, operation, value in changes:
        if operation not in _OPERATIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}: unknown operation {operation}")
        if value is None and operation != Operation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}: the value is missing")


def change_configs(present: Mapping[str, str], lookup: Lookup, changes: Sequence[ConfigChange]) -> dict[str, str]:
    """Return the settings after the changes. Raises INVALID_CONFIG; does not validate the values."""
    result = dict(present)
    for key, operation, value in changes:
        if operation == Operation.DELETE:
            result.pop(key, None)
            continue
        assert value is not None
        result[key] = value if operation == Operation.SET else _change_list(result, lookup, key, operation, value)
    return result


def _change_list(present: Mapping[str, str], lookup: Lookup, key: str, operation: int, value: str) -> str:
    found = lookup(key)
    if found is None or found[0].kind != "list":
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is not a list, it can only be set or deleted")
    known, default = found
    try:
        items = list(known.parse(present[key]) if key in present else default)
        changed = known.parse(value)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if operation == Operation.APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return known.format(tuple(items))
