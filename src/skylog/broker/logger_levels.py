"""Levels of the broker's loggers (KIP-412). Clients can change them at run time; a restart resets them.

The root logger is called `root`. A logger without a level shows the one it inherits. Deleting the level of a logger
makes it inherit again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from skylog.errors import ErrorCode, KafkaError

ROOT: Final = "root"
TRACE: Final = 5
LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_SET, _DELETE = 0, 1


def describe_levels() -> list[tuple[str, str]]:
    """Return every logger with its effective level."""
    return [(name, _level_name(_logger(name).getEffectiveLevel())) for name in _names()]


def change_levels(changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool) -> None:
    """Set or delete levels, all or none. Raises INVALID_CONFIG or INVALID_REQUEST."""
    known = set(_names())
    levels: dict[str, int] = {}
    for name, operation, value in changes:
        if operation not in (_SET, _DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the level of {name} can only be set or deleted")
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown logger {name}")
        if operation == _DELETE and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be deleted")
        if operation == _SET and value not in LEVELS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value}: expected one of {', '.join(LEVELS)}")
        levels[name] = logging.NOTSET if operation == _DELETE else LEVELS[str(value)]
    if not validate_only:
        for name, level in levels.items():
            _logger(name).setLevel(level)


def _names() -> list[str]:
    found = logging.Logger.manager.loggerDict.items()
    return [ROOT, *sorted(name for name, logger in found if isinstance(logger, logging.Logger))]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _level_name(level: int) -> str:
    """Return the name of the highest Kafka level that is not above `level`."""
    names = [name for name, number in LEVELS.items() if number <= level]
    return names[-1] if names else "TRACE"
