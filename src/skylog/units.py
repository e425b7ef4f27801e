"""Durations and sizes as people write them: `1h30m`, `3d`, `50MB`, `1GiB`."""

from __future__ import annotations

import re
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION: Final = re.compile(r"(?:\d+(?:ms|s|m|h|d|w))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d+)(ms|s|m|h|d|w)", re.ASCII)
_BYTES: Final = re.compile(r"(\d+)\s*(?:([kKMGT])(i?)B?|B)?", re.ASCII)
_POWERS: Final = " KMGT"


def duration_ms(text: str) -> int | None:
    """Return a duration such as `90s` or `1h30m` in milliseconds, None if it is none."""
    if not _DURATION.fullmatch(text.strip()):
        return None
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _DURATION_PART.findall(text))


def byte_count(text: str) -> int | None:
    """Return a size such as `50MB`, `512KiB` or `1000000` in bytes, None if it is none."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        return None
    power = _POWERS.index((match[2] or " ").upper())
    return int(int(match[1]) * (1024 if match[3] else 1000) ** power)


def config_value(key: str, text: str) -> str:
    """Return the value of a setting without its unit: `3d` of a key in milliseconds, `1GiB` of one in bytes."""
    number = None
    if key.endswith(".ms"):
        number = duration_ms(text)
    elif key.endswith(".bytes"):
        number = byte_count(text)
    return text if number is None else str(number)
