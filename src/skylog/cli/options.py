"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from skylog.config import read_properties
from skylog.errors import ConfigError

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", metavar="HOST:PORT", envvar="SKYLOG_BOOTSTRAP", help="A broker of the cluster, or several: a,b."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A configuration key of the topic; may be given many times."),
]

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION: Final = re.compile(r"(?:\d+(?:ms|s|m|h|d|w))+")
_DURATION_PART: Final = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_NUMBERS: Final = re.compile(r"\d+(?:,\d+)*", re.ASCII)


def parse_pairs(texts: Iterable[str] | None, option: str) -> list[tuple[str, str]]:
    """`key=value` texts of a repeatable option, in order."""
    pairs = []
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"expected KEY=VALUE, got '{text}'", param_hint=option)
        pairs.append((key.strip(), value))
    return pairs


def parse_partitions(texts: Iterable[str], option: str) -> dict[str, set[int] | None]:
    """The partitions that `topic:0,1` texts name, by topic; None for all of them, which `topic` stands for."""
    topics: dict[str, set[int] | None] = {}
    for text in texts:
        topic, separator, numbers = text.partition(":")
        if not topic or (separator and not _NUMBERS.fullmatch(numbers)):
            raise typer.BadParameter(f"expected TOPIC or TOPIC:0,1, got '{text}'", param_hint=option)
        before = topics.get(topic, set())
        named = {int(number) for number in numbers.split(",")} if separator else None
        topics[topic] = None if before is None or named is None else before | named
    return topics


def parse_when(text: str, now_ms: int, option: str = "--time") -> int:
    """Milliseconds since 1970 of `2024-05-01T12:00`, local unless it has a zone, or of `1h30m`, so long ago."""
    if _DURATION.fullmatch(text):
        return max(now_ms - _duration_ms(text), 0)
    try:
        moment = datetime.fromisoformat(text)
        return max(int(moment.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"'{text}' is no time: give ISO 8601 such as 2024-05-01T12:00, or how long ago, such as 30m or 2h",
            param_hint=option,
        ) from None


def parse_duration_ms(text: str, option: str) -> int:
    """Milliseconds of `90s` or `1h30m`."""
    if not _DURATION.fullmatch(text):
        raise typer.BadParameter(f"'{text}' is no length of time: give such as 30s, 2m or 1h30m", param_hint=option)
    return _duration_ms(text)


def _duration_ms(text: str) -> int:
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _DURATION_PART.findall(text))


def read_settings(path: Path | None, texts: Iterable[str], option: str) -> dict[str, str]:
    """The settings of the file of `--config`, if any, and of the KEY=VALUE texts of `option`, which go before it."""
    values: dict[str, str] = {}
    if path is not None:
        try:
            values = read_properties(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --config {path}: {error}") from error
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"{option}: expected KEY=VALUE")  # without the text, which may be a secret
        values[key.strip()] = value.strip()
    return values
