"""How numbers, sizes and times are written on pages."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def count(value: float | None) -> str:
    """A number with separators; small fractions are kept, so that a slow rate is not nothing."""
    if value is None:
        return "–"
    if value and abs(value) < 10 and value != int(value):
        return f"{value:.1f}" if abs(value) >= 0.05 else "<0.1"
    return f"{value:,.0f}"


def size(value: float | None) -> str:
    if value is None:
        return "–"
    power = 0
    while abs(value) >= 1000 and power < len(_BYTES) - 1:
        value /= 1000
        power += 1
    return f"{value:.0f} {_BYTES[power]}" if power == 0 or abs(value) >= 100 else f"{value:.1f} {_BYTES[power]}"


def rate(value: float | None) -> str:
    return "–" if value is None else f"{count(value)}/s"


def byte_rate(value: float | None) -> str:
    return "–" if value is None else f"{size(value)}/s"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"


def span(milliseconds_: float | None) -> str:
    """A length of time in its two largest units."""
    if milliseconds_ is None:
        return "–"
    if milliseconds_ < 0:
        return "for ever"
    seconds = int(milliseconds_ / 1000)
    parts = []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= length:
            parts.append(f"{seconds // length} {unit}")
            seconds %= length
    return " ".join(parts[:2]) or f"{milliseconds_:.0f} ms"


def moment(time_ms: int | None) -> str:
    """A time in UTC to the millisecond."""
    if time_ms is None or time_ms < 0:
        return "–"
    try:
        when = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return f"{when:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"


def ago(time_ms: int | None) -> str:
    return "–" if time_ms is None else f"{span(max(time.time() * 1000 - time_ms, 0))} ago"


def link(path: str, *parts: str, **fields: object) -> str:
    """A path on this console. Names become safe parts of it; one that ends in .json is told apart from the ending."""
    names = [quote(part, safe="") for part in parts]
    whole = "/".join([path.rstrip("/"), *names]) if names else path
    if whole.endswith(".json"):
        fields = {"format": "html", **fields}
    return f"{whole}?{urlencode(fields)}" if fields else whole
