"""Configuration: frozen dataclasses whose fields carry Kafka's property names.

Each owner declares its settings beside its code::

    @dataclass(frozen=True)
    class LogConfig:
        segment_bytes: int = setting("segment.bytes", 1 << 30, "Start a new segment at this size.", minimum=14)

and `parse(LogConfig, {"segment.bytes": "1048576"})` creates one from strings. An unknown key is an error that names
the nearest known key; an invalid value is an error too. This module knows how settings are declared and parsed, not
which settings exist.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

from skylog.errors import ConfigError

T = TypeVar("T")

MAX_TEXT_LENGTH: Final = 8191
"""The longest allowed value. Every protocol version can carry it: older versions limit a string to 32 KiB."""

MAX_SECRET_LENGTH: Final = 1024 * 1024
"""The longest password, key or list of certificates. No response has it."""

HIDDEN: Final = "[hidden]"
"""What stands for a secret in logs and errors."""

_SETTING = "skylog.setting"
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)


Check = Callable[[Any], str | None]
"""Validates a value: returns what was expected, or None if the value is valid."""


class UpdateMode(Enum):
    """When a broker key may change: only at startup, at run time per broker, or at run time for the whole cluster."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one key. `kind` is Kafka's type name: boolean, int, long, double, string, password or list.

    The value of a password is a secret: it is in no error and in no log, and clients do not get it.

    `update_mode` applies to the broker key, also if the setting belongs to a topic.
    """

    key: str
    field: str
    kind: str
    default: Any
    doc: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    check: Check | None
    broker_key: str | None
    update_mode: UpdateMode

    @property
    def is_secret(self) -> bool:
        return self.kind == "password"

    def parse(self, text: str) -> Any:
        """Convert and validate `text`. Raises ConfigError if it is invalid."""
        if len(text) > (MAX_SECRET_LENGTH if self.is_secret else MAX_TEXT_LENGTH):
            raise ConfigError(f"{self.key}: a value of {len(text)} characters is too long")
        try:
            value = self._convert(text.strip())
        except ValueError:
            raise ConfigError(f"{self.key}={text}: expected {_ARTICLE[self.kind]}") from None
        items = value if isinstance(value, tuple) else (value,)
        if self.choices and not all(item in self.choices for item in items):
            raise ConfigError(f"{self.key}={text}: expected one of {', '.join(self.choices)}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise ConfigError(f"{self.key}={text}: must be at least {self.minimum}")
            if self.maximum is not None and value > self.maximum:
                raise ConfigError(f"{self.key}={text}: must be at most {self.maximum}")
        expected = self.check(value) if self.check is not None else None
        if expected is not None:
            raise ConfigError(f"{self.key}={HIDDEN if self.is_secret else text}: {expected}")
        return value

    def _convert(self, text: str) -> Any:
        match self.kind:
            case "boolean":
                if text.lower() not in ("true", "false"):
                    raise ValueError(text)
                return text.lower() == "true"
            case "int" | "long":
                bits = 31 if self.kind == "int" else 63
                number = int(text)
                if not _NUMBER.fullmatch(text) or not -(1 << bits) <= number < 1 << bits:
                    raise ValueError(text)
                return number
            case "double":
                if not _NUMBER.fullmatch(text):  # Python would also accept 1_000, ١٢ and nan
                    raise ValueError(text)
                return float(text)
            case "list":
                return tuple(item.strip() for item in text.split(",") if item.strip())
            case _:
                return text

    def format(self, value: Any) -> str:
        """Format `value` as Kafka prints it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return "" if value is None else str(value)


_ARTICLE = {
    "boolean": "true or false",
    "int": "a whole number of 32 bits",
    "long": "a whole number of 64 bits",
    "double": "a number",
    "string": "text",
    "password": "text",
    "list": "a list separated by commas",
}
_KINDS: dict[type, str] = {bool: "boolean", int: "long", float: "double", str: "string", tuple: "list"}


def setting(
    key: str,
    default: Any,
    doc: str,
    *,
    kind: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    check: Check | None = None,
    broker_key: str | None = None,
    update_mode: UpdateMode | None = None,
) -> Any:
    """Declare a dataclass field as the setting `key`. `broker_key` names the broker-wide default of a topic key.

    Unless `update_mode` is given, that default can be changed at run time for the whole cluster, and a key of the
    broker itself is read-only.
    """
    kind = kind or _KINDS[type(default)]
    mode = update_mode or (UpdateMode.CLUSTER_WIDE if broker_key else UpdateMode.READ_ONLY)
    declared = Setting(key, "", kind, default, doc, minimum, maximum, choices, check, broker_key, mode)
    return dataclasses.field(default=default, repr=not declared.is_secret, metadata={_SETTING: declared})


@cache
def settings(owner: type) -> dict[str, Setting]:
    """Return the settings that the dataclass `owner` declares, by key."""
    return {
        field.metadata[_SETTING].key: dataclasses.replace(field.metadata[_SETTING], field=field.name)
        for field in dataclasses.fields(owner)
        if _SETTING in field.metadata
    }


def find(owner: type, key: str) -> Setting:
    """Return the setting `key` of `owner`. Raises ConfigError that names the nearest known key."""
    known = settings(owner)
    if key in known:
        return known[key]
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    raise ConfigError(f"unknown configuration key '{key}'{hint}")


def parse(owner: type[T], values: Mapping[str, str], base: T | None = None) -> T:
    """Create an `owner` from `base` (or the defaults) with the given keys replaced."""
    changes = {}
    for key, text in values.items():
        known = find(owner, key)
        changes[known.field] = known.parse(text)
    if base is None:
        return owner(**changes)
    return dataclasses.replace(base, **changes)  # type: ignore[type-var]  # T is always a dataclass


def read_properties(text: str) -> dict[str, str]:
    """Parse the `key=value` lines of a properties file; `#` and `!` start comments.

    A line that ends in a backslash goes on in the next one, as in Java. Other backslashes stay as they are.
    """
    values = {}
    lines = enumerate(text.splitlines(), start=1)
    for number, raw in lines:
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise ConfigError(f"line {number}: expected key=value")  # the line may be a part of a secret
        while value.endswith("\\"):
            value = value[:-1] + next(lines, (0, ""))[1].strip()
        values[key.strip()] = value.strip()
    return values
