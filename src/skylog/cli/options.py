"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final

import typer

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", metavar="HOST:PORT", envvar="SKYLOG_BOOTSTRAP", help="A broker of the cluster, or several: a,b."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A configuration key of the topic; may be given many times."),
]

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_AGO: Final = re.compile(r"(?:\d+(?:ms|s|m|h|d|w))+")
_AGO_PART: Final = re.compile(r"(\d+)(ms|s|m|h|d|w)")


def parse_pairs(texts: Iterable[str] | None, option: str) -> list[tuple[str, str]]:
    """`key=value` texts of a repeatable option, in order."""
    pairs = []
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"expected KEY=VALUE, got '{text}'", param_hint=option)
        pairs.append((key.strip(), value))
    return pairs


def parse_when(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of `2024-05-01T12:00`, local unless it has a zone, or of `1h30m`, so long ago."""
    if _AGO.fullmatch(text):
        return now_ms - sum(int(count) * _UNITS_MS[unit] for count, unit in _AGO_PART.findall(text))
    try:
        moment = datetime.fromisoformat(text)
        return max(int(moment.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"'{text}' is no time: give ISO 8601 such as 2024-05-01T12:00, or how long ago, such as 30m or 2h",
            param_hint="--time",
        ) from None
