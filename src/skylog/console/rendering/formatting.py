"""Formats numbers, sizes, times and links for pages."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")


def count(value: float | None) -> str:
    """Format a number with separators. Small fractions are kept, so that a low rate does not show as 0."""
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


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{share * 100:.0f} %" if share >= 0.1 or not share else f"{share * 100:.1f} %"


def rate(value: float | None) -> str:
    return "–" if value is None else f"{count(value)}/s"


def byte_rate(value: float | None) -> str:
    return "–" if value is None else f"{size(value)}/s"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"


def duration(milliseconds_: float | None) -> str:
    """Format a duration in its two largest units. Negative values mean no limit, as in `retention.ms`."""
    if milliseconds_ is None:
        return "–"
    if milliseconds_ < 0:
        return "forever"
    seconds = int(milliseconds_ / 1000)
    parts = []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= length:
            parts.append(f"{seconds // length} {unit}")
            seconds %= length
    return " ".join(parts[:2]) or f"{milliseconds_:.0f} ms"


def age(milliseconds_: float | None, is_estimated: bool = False) -> str:
    """Format how far behind a reader is."""
    if milliseconds_ is None:
        return "for an unknown time"
    return f"{'about ' if is_estimated else ''}{duration(milliseconds_)} behind"


def utc_time(time_ms: int | None) -> str:
    """Format a time in UTC, to the millisecond."""
    if time_ms is None or time_ms < 0:
        return "–"
    try:
        when = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return f"{when:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"


def moment(time_ms: int | None, length: int | None = None) -> Markup:
    """Format a time for a page, in UTC; `length` cuts off its end. The page's script can show it in local time."""
    text = utc_time(time_ms)
    if time_ms is None or not text.endswith(f".{time_ms % 1000:03d}"):
        return escape(text)
    return Markup('<time datetime="{}Z" data-length="{}">{}</time>').format(
        text.replace(" ", "T"), length or len(text), text[:length]
    )


def ago(time_ms: int | None) -> str:
    return "–" if time_ms is None else f"{duration(max(time.time() * 1000 - time_ms, 0))} ago"


def link(path: str, *parts: str, **fields: object) -> str:
    """Build a path on this console with escaped names. If it ends in .json, add `format=html` to keep that suffix."""
    names = [quote(part, safe="") for part in parts]
    whole = "/".join([path.rstrip("/"), *names]) if names else path
    if whole.endswith(".json"):
        fields = {"format": "html", **fields}
    return f"{whole}?{urlencode(fields)}" if fields else whole
