"""How a console is set up, and what it refuses to be."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from skylog.errors import ConfigError

DEFAULT_PORT: Final = 8080
TOKEN_VARIABLE: Final = "SKYLOG_CONSOLE_TOKEN"
USER_VARIABLE: Final = "SKYLOG_CONSOLE_USER"
PASSWORD_VARIABLE: Final = "SKYLOG_CONSOLE_PASSWORD"
OPTION_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.address.", "client.")
"""What `skylog.client.Connection` hands on to every client; it passes over the rest without a word."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`token`, or `user` and `password`, is what visitors must show; without either everybody is let in, which is
    refused beyond loopback. `options` are librdkafka's settings on how to reach the cluster."""

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    read_only: bool = False
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def wants_credentials(self) -> bool:
        return bool(self.token or self.user)

    def check(self, prefix: str = "--") -> None:
        """Raise ConfigError for what must not be served. `prefix` is how the command's options begin."""
        for key in self.options:
            if not key.startswith(OPTION_PREFIXES):
                raise ConfigError(
                    f"{prefix}option {key}: only librdkafka's settings on how to reach a cluster are taken, which "
                    f"begin with {', '.join(OPTION_PREFIXES)}"
                )
        if bool(self.user) != bool(self.password):
            raise ConfigError(f"{prefix}user and {prefix}password go together; give both or neither")
        if not self.wants_credentials and not is_loopback(self.host):
            raise ConfigError(
                f"{prefix}host {self.host} would let everybody in who reaches this machine; give {prefix}token, or "
                f"{prefix}user and {prefix}password, or leave the console on 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`. No name is looked up: anybody can let a name point here."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
