"""The settings of a console, and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from skylog.errors import ConfigError
from skylog.web.access import check_access

DEFAULT_PORT: Final = 8080
CLUSTER_NAME: Final = re.compile(r"[a-zA-Z0-9_.\-]{1,64}", re.ASCII)
TOKEN_VARIABLE: Final = "SKYLOG_CONSOLE_TOKEN"
USER_VARIABLE: Final = "SKYLOG_CONSOLE_USER"
PASSWORD_VARIABLE: Final = "SKYLOG_CONSOLE_PASSWORD"
OPTION_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.address.", "client.")
"""The settings that `skylog.client.Connection` passes to every client. It ignores all others silently."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`token`, or `user` and `password`, are the credentials that visitors need. With `asks_users`, visitors log in as
    users of the cluster. Without credentials, only a loopback address is allowed.

    `options` are librdkafka settings for the connection. `clusters` are the addresses of further clusters by name.
    `search_index` is the file that `/search` queries. `registry` is the URL of the schema registry
    of the first cluster, with `registry_token`, or `registry_user` and `registry_password`, if it needs them."""

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    read_only: bool = False
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    clusters: Mapping[str, str] = field(default_factory=dict)
    search_index: Path | None = None
    registry: str | None = None
    registry_token: str | None = field(default=None, repr=False)
    registry_user: str | None = None
    registry_password: str | None = field(default=None, repr=False)
    asks_users: bool = False

    @property
    def asks_for_user(self) -> bool:
        return bool(self.user) or self.asks_users

    @property
    def requires_credentials(self) -> bool:
        return bool(self.token) or self.asks_for_user

    def check(self, prefix: str = "--") -> None:
        """Raise ConfigError if the settings are invalid or unsafe. `prefix` is the prefix of the command's options."""
        for key in self.options:
            if not key.startswith(OPTION_PREFIXES):
                raise ConfigError(
                    f"{prefix}option {key}: only librdkafka settings for the connection are allowed; they begin with "
                    f"{', '.join(OPTION_PREFIXES)}"
                )
        check_access(self, prefix)
