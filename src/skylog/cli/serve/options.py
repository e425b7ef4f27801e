"""The options of `skylog serve`, parsed. `command` describes them to users."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from skylog.cli.log_format import LogFormat


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options by the names of `command.serve`, with its defaults.

    Without a host or a port, the `listeners` of the configuration decide, or 127.0.0.1:9092 if there are none.
    """

    data_dir: Path = Path("skylog-data")
    host: str | None = None
    port: int | None = None
    settings: tuple[str, ...] = ()
    config_file: Path | None = None
    zookeeper: str | None = None
    metadata_store: str | None = None
    console: bool = True
    console_host: str | None = None
    console_port: int | None = None
    console_read_only: bool = False
    console_token: str | None = None
    console_user: str | None = None
    console_password: str | None = None
    registry_host: str | None = None
    registry_port: int | None = None
    registry_read_only: bool = False
    registry_token: str | None = None
    registry_user: str | None = None
    registry_password: str | None = None
    metrics_topic: bool = False
    log_level: str = "info"
    log_format: LogFormat = LogFormat.TEXT
