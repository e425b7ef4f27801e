"""How clients change configuration: single keys of what is set, or all of it, for topics, brokers and loggers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from skylog.broker.config import find_broker_key
from skylog.broker.logger_levels import change_levels
from skylog.broker.topic_configs import Resource
from skylog.config import Setting, settings
from skylog.errors import ConfigError, ErrorCode, KafkaError
from skylog.storage import LogConfig

if TYPE_CHECKING:
    from skylog.broker.broker import Broker


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS: Final = frozenset(Operation)


class Change(NamedTuple):
    key: str
    operation: int
    value: str | None


Lookup = Callable[[str], tuple[Setting, Any] | None]
"""The setting of a key and its value where nothing is set; None for an unknown key."""


async def alter(
    broker: Broker, resource_type: int, name: str, changes: Sequence[Change], *, whole: bool, validate_only: bool
) -> None:
    """Change what is set for a resource; `whole` forgets first what was set. Raises KafkaError."""
    check_changes(changes)
    if resource_type == Resource.TOPIC:
        await _alter_topic(broker, name, changes, whole, validate_only)
    elif resource_type == Resource.BROKER:
        lookup = partial(_broker_lookup, broker)
        await broker.configs.alter(
            name, lambda present: change_configs({} if whole else present, lookup, changes), validate_only=validate_only
        )
    elif resource_type == Resource.BROKER_LOGGER and not whole:
        broker.configs.check_name(name)
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "loggers belong to one broker: name its id")
        change_levels(changes, validate_only=validate_only)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} cannot be altered here")


async def _alter_topic(broker: Broker, name: str, changes: Sequence[Change], whole: bool, validate_only: bool) -> None:
    topic = broker.topics.get(name)
    defaults = broker.config.log

    def lookup(key: str) -> tuple[Setting, Any] | None:
        known = settings(LogConfig).get(key)
        return None if known is None else (known, getattr(defaults, known.field))

    configs = change_configs({} if whole else topic.configs, lookup, changes)
    broker.topics.check_configs(name, configs)
    if not validate_only:
        await broker.topics.configure(topic, configs)


def _broker_lookup(broker: Broker, key: str) -> tuple[Setting, Any] | None:
    try:
        return find_broker_key(key)[1], broker.config.value_of(key)
    except ConfigError:
        return None


def check_changes(changes: Sequence[Change]) -> None:
    """Raise INVALID_REQUEST for changes that make no sense, whatever their keys."""
    if len({change.key for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a key stands twice in one request")
    for key, operation, value in changes:
        if operation not in _OPERATIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}: there is no operation {operation}")
        if value is None and operation != Operation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}: a value is missing")


def change_configs(present: Mapping[str, str], lookup: Lookup, changes: Sequence[Change]) -> dict[str, str]:
    """What is set after the changes. Raises INVALID_CONFIG; whether the values fit is for others to say."""
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
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is no list, it can only be set or deleted")
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
