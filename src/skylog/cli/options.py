"""Options shared by several commands, and parsers for their values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from skylog.cli.settings import read_settings as read_settings
from skylog.units import byte_count, duration_ms

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="SKYLOG_BOOTSTRAP",
        help="One or more brokers of the cluster, separated by commas.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A topic setting; can be repeated."),
]


class CodecName(StrEnum):
    """The compression codecs that `--codec` accepts."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


_NUMBERS: Final = re.compile(r"\d+(?:,\d+)*", re.ASCII)


def parse_pairs(texts: Iterable[str] | None, option: str) -> list[tuple[str, str]]:
    """Parse the `key=value` texts of a repeatable option, in order."""
    pairs = []
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"expected KEY=VALUE, got '{text}'", param_hint=option)
        pairs.append((key.strip(), value))
    return pairs


def parse_partitions(texts: Iterable[str], option: str) -> dict[str, set[int] | None]:
    """Parse `topic:0,1` and `topic` texts. Returns partitions by topic; None means all partitions."""
    topics: dict[str, set[int] | None] = {}
    for text in texts:
        topic, separator, numbers = text.partition(":")
        if not topic or (separator and not _NUMBERS.fullmatch(numbers)):
            raise typer.BadParameter(f"expected TOPIC or TOPIC:0,1, got '{text}'", param_hint=option)
        before = topics.get(topic, set())
        named = {int(number) for number in numbers.split(",")} if separator else None
        topics[topic] = None if before is None or named is None else before | named
    return topics


def parse_numbers(text: str, option: str) -> list[int]:
    """Parse a list such as `1,2,3`."""
    if not _NUMBERS.fullmatch(text):
        raise typer.BadParameter(f"expected numbers such as 1,2,3, got '{text}'", param_hint=option)
    return list(dict.fromkeys(map(int, text.split(","))))


def parse_bytes(text: str, option: str) -> int:
    """Parse a positive number of bytes such as `50MB`, `512KiB` or `1000000`."""
    count = byte_count(text)
    if not count:
        raise typer.BadParameter(f"'{text}' is not a number of bytes: use a form such as 50MB", param_hint=option)
    return count


def parse_when(text: str, now_ms: int, option: str = "--time") -> int:
    """Parse a time to milliseconds since 1970: `2024-05-01T12:00` (local unless it has a zone), or `1h30m` (ago)."""
    ago_ms = duration_ms(text)
    if ago_ms is not None:
        return max(now_ms - ago_ms, 0)
    try:
        moment = datetime.fromisoformat(text)
        return max(int(moment.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"'{text}' is not a time: use ISO 8601 such as 2024-05-01T12:00, or a duration ago such as 30m or 2h",
            param_hint=option,
        ) from None


def parse_duration_ms(text: str, option: str) -> int:
    """Parse a duration such as `90s` or `1h30m` to milliseconds."""
    found = duration_ms(text)
    if found is None:
        raise typer.BadParameter(f"'{text}' is not a duration: use a form such as 30s, 2m or 1h30m", param_hint=option)
    return found
