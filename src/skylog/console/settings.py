"""How a console is set up, and what it refuses to be."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

from skylog.errors import ConfigError

DEFAULT_PORT: Final = 8080


@dataclass(frozen=True, slots=True)
class Settings:
    """`token`, or `user` and `password`, is what visitors must show; without either everybody is let in, which is
    refused beyond loopback."""

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    read_only: bool = False
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def wants_credentials(self) -> bool:
        return bool(self.token or self.user)

    def check(self) -> None:
        """Raise ConfigError for what must not be served."""
        if bool(self.user) != bool(self.password):
            raise ConfigError("a user needs a password and a password needs a user; give both or neither")
        if not self.wants_credentials and not is_loopback(self.host):
            raise ConfigError(
                f"the console would listen on {self.host} and let everybody in; "
                "give a token, or a user and a password, or listen on 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
