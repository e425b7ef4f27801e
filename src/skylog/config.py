"""Configuration: frozen dataclasses whose fields carry Kafka's property names.

Each owner declares its settings beside its code::

    @dataclass(frozen=True)
    class LogConfig:
        segment_bytes: int = setting("segment.bytes", 1 << 30, "Roll to a new file at this size.", minimum=14)

and `parse(LogConfig, {"segment.bytes": "1048576"})` makes one from strings. An unknown key is refused with the
nearest known one named; so is a value that does not fit. This module knows how settings are declared and read,
not which settings there are.
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
"""No value is longer, so that every version of the protocol can carry it: the older ones have 32 KiB for a string."""

_SETTING = "skylog.setting"
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)


Check = Callable[[Any], str | None]
"""Says what a value was expected to be; None for one that fits."""


class UpdateMode(Enum):
    """When a broker's key may change: at the start only, or at run time for one broker, or also for all of them."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one key. `kind` is Kafka's type name: boolean, int, long, double, string or list.

    `update_mode` is that of the broker's key, also where the setting is a topic's.
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

    def parse(self, text: str) -> Any:
        """The value that `text` stands for. Raises ConfigError where it stands for none."""
        if len(text) > MAX_TEXT_LENGTH:
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
            raise ConfigError(f"{self.key}={text}: {expected}")
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
                if not _NUMBER.fullmatch(text):  # Python would also take 1_000, ١٢ and nan
                    raise ValueError(text)
                return float(text)
            case "list":
                return tuple(item.strip() for item in text.split(",") if item.strip())
            case _:
                return text

    def format(self, value: Any) -> str:
        """`value` as Kafka would print it."""
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
    """Declare a dataclass field as the setting `key`. `broker_key` names the broker-wide default of a topic's key.

    That default can be changed at run time for all brokers unless `update_mode` says otherwise; a key of the broker's
    own cannot.
    """
    kind = kind or _KINDS[type(default)]
    mode = update_mode or (UpdateMode.CLUSTER_WIDE if broker_key else UpdateMode.READ_ONLY)
    facts = Setting(key, "", kind, default, doc, minimum, maximum, choices, check, broker_key, mode)
    return dataclasses.field(default=default, metadata={_SETTING: facts})


@cache
def settings(owner: type) -> dict[str, Setting]:
    """The settings that the dataclass `owner` declares, by key."""
    return {
        field.metadata[_SETTING].key: dataclasses.replace(field.metadata[_SETTING], field=field.name)
        for field in dataclasses.fields(owner)
        if _SETTING in field.metadata
    }


def find(owner: type, key: str) -> Setting:
    """The setting `key` of `owner`. Raises ConfigError naming the nearest key there is."""
    known = settings(owner)
    if key in known:
        return known[key]
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    raise ConfigError(f"unknown configuration key '{key}'{hint}")


def parse(owner: type[T], values: Mapping[str, str], base: T | None = None) -> T:
    """An `owner` made of `base` (or the defaults) with the given keys replaced."""
    changes = {}
    for key, text in values.items():
        known = find(owner, key)
        changes[known.field] = known.parse(text)
    if base is None:
        return owner(**changes)
    return dataclasses.replace(base, **changes)  # type: ignore[type-var]  # T is always a dataclass


def read_properties(text: str) -> dict[str, str]:
    """The `key=value` lines of a properties file; `#` and `!` start comments."""
    values = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise ConfigError(f"line {number}: expected key=value, found {line!r}")
        values[key.strip()] = value.strip()
    return values
