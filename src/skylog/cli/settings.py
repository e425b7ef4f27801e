"""The settings that a command is given: in a properties file, and as KEY=VALUE options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from skylog.config import read_properties
from skylog.errors import ConfigError


def read_settings(path: Path | None, texts: Iterable[str], option: str) -> dict[str, str]:
    """Read settings from the `--config` file, if any, and the KEY=VALUE texts of `option`, which take precedence."""
    values: dict[str, str] = {}
    if path is not None:
        try:
            values = read_properties(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --config {path}: {error}") from error
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"{option}: expected KEY=VALUE")  # omits the text, which may be a secret
        values[key.strip()] = value.strip()
    return values
