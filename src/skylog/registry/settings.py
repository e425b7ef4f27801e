"""The settings of a registry. `skylog serve` uses them too, so this module imports no client and no web framework."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from skylog.web.access import check_access

DEFAULT_PORT: Final = 8081
DEFAULT_TOPIC: Final = "_schemas"
TOKEN_VARIABLE: Final = "SKYLOG_REGISTRY_TOKEN"
USER_VARIABLE: Final = "SKYLOG_REGISTRY_USER"
PASSWORD_VARIABLE: Final = "SKYLOG_REGISTRY_PASSWORD"
URL_VARIABLE: Final = "SKYLOG_REGISTRY"


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """`token`, or `user` and `password`, are the credentials that clients need. With `asks_users`, clients log in as
    users of the cluster. Without credentials, only a loopback address is allowed.

    `advertised_url` is where the other registries of the cluster reach this one."""

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    read_only: bool = False
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    topic: str = DEFAULT_TOPIC
    advertised_url: str | None = None
    asks_users: bool = False

    @property
    def asks_for_user(self) -> bool:
        return bool(self.user) or self.asks_users

    @property
    def requires_credentials(self) -> bool:
        return bool(self.token) or self.asks_for_user

    @property
    def group(self) -> str:
        """The consumer group in which the registries of a topic elect the one that writes."""
        return f"skylog-registry-{self.topic}"

    def check(self, prefix: str = "--") -> None:
        """Raise ConfigError if the settings are unsafe. `prefix` is the prefix of the command's options."""
        check_access(self, prefix)
