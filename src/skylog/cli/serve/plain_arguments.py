"""Reads the plain arguments of `skylog serve` without typer, which takes a quarter of a broker's start.

Whatever is not plain is left to typer: help, mistakes, and values that could be taken for options. So only typer says
what is wrong. `tests/cli/test_plain_arguments.py` holds both equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from skylog.cli.log_format import LOG_FORMAT_VARIABLE, LogFormat
from skylog.cli.serve.options import ServeOptions
from skylog.console.settings import PASSWORD_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE
from skylog.registry import settings as registry_settings

MAX_PORT: Final = 65535


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_PORT)) and int(text) <= MAX_PORT):
        raise ValueError(text)
    return int(text)


VALUES: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "--data-dir": ("data_dir", Path),
    "--host": ("host", str),
    "--port": ("port", _port),
    "--config": ("config_file", Path),
    "--zookeeper": ("zookeeper", str),
    "--metadata-store": ("metadata_store", str),
    "--console-host": ("console_host", str),
    "--console-port": ("console_port", _port),
    "--console-token": ("console_token", str),
    "--console-user": ("console_user", str),
    "--console-password": ("console_password", str),
    "--registry-host": ("registry_host", str),
    "--registry-port": ("registry_port", _port),
    "--registry-token": ("registry_token", str),
    "--registry-user": ("registry_user", str),
    "--registry-password": ("registry_password", str),
    "--log-level": ("log_level", str),
    "--log-format": ("log_format", LogFormat),
}
"""Options with a value: the field of ServeOptions and its type."""

REPEATED: Final = "--set"
"""The option that may be given several times."""

FLAGS: Final = {
    "--console": ("console", True),
    "--no-console": ("console", False),
    "--console-read-only": ("console_read_only", True),
    "--registry-read-only": ("registry_read_only", True),
    "--metrics-topic": ("metrics_topic", True),
}

VARIABLES: Final = {
    TOKEN_VARIABLE: "--console-token",
    USER_VARIABLE: "--console-user",
    PASSWORD_VARIABLE: "--console-password",
    registry_settings.TOKEN_VARIABLE: "--registry-token",
    registry_settings.USER_VARIABLE: "--registry-user",
    registry_settings.PASSWORD_VARIABLE: "--registry-password",
    LOG_FORMAT_VARIABLE: "--log-format",
}
"""Environment variables, and the options that take precedence over them."""


def read_plain_arguments(arguments: list[str], environment: Mapping[str, str]) -> ServeOptions | None:
    """Return the options, or None if typer has to read the arguments."""
    given = [(VARIABLES[name], value) for name, value in environment.items() if name in VARIABLES and value]
    fields: dict[str, Any] = {}
    remaining = iter(arguments)
    for argument in remaining:
        name, is_joined, value = argument.partition("=")
        if name in FLAGS and not is_joined:
            field, flag = FLAGS[name]
            fields[field] = flag
            continue
        if not is_joined:
            value = next(remaining, "")
        if not value or value.startswith("-"):
            return None
        given.append((name, value))
    settings: list[str] = []
    for name, value in given:
        if name == REPEATED:
            settings.append(value)
        elif name in VALUES:
            field, convert = VALUES[name]
            try:
                fields[field] = convert(value)
            except ValueError:
                return None
        else:
            return None
    return ServeOptions(**fields, settings=tuple(settings))
