"""The log format of long-running commands on stderr: text for people, or one JSON object per line for collectors."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from skylog.errors import ConfigError

TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
LOG_FORMAT_VARIABLE: Final = "SKYLOG_LOG_FORMAT"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """Formats a record as {"time", "level", "logger", "message"}, plus "exception" with the traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def start_logging(level: str, log_format: LogFormat = LogFormat.TEXT) -> None:
    """Configure logging on stderr. Raises ConfigError for an unknown level.

    `level` may have levels of loggers behind that of all: info,kafka.authorizer.logger=debug.
    """
    number = check_level(level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=number, handlers=[handler])
    for name, own in _levels_of_loggers(level).items():
        logging.getLogger(name).setLevel(own)


def check_level(level: str) -> int:
    """Return the number of the log level of all loggers. Raises ConfigError for an unknown level."""
    _levels_of_loggers(level)
    return _number(level.partition(",")[0])


def _levels_of_loggers(level: str) -> dict[str, int]:
    pairs = [text.partition("=") for text in level.split(",")[1:]]
    if not all(own for _, _, own in pairs):
        raise ConfigError(f"--log-level {level}: expected a level, then LOGGER=LEVEL for each logger with another one")
    return {name.strip(): _number(own) for name, _, own in pairs}


def _number(level: str) -> int:
    number = logging.getLevelNamesMapping().get(level.strip().upper())
    if number is None:
        raise ConfigError(f"--log-level {level}: expected debug, info, warning or error")
    return number
