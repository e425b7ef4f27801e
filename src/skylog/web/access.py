"""Who may use an HTTP server, and the rules that protect it against requests that other sites make by a browser.

`skylog serve` checks the settings of its companions with this module, so it imports no web framework.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from skylog.errors import ConfigError

if TYPE_CHECKING:
    from starlette.datastructures import Headers

ASKS_NOBODY: Final = (
    "the {} asks for no login: everybody on this machine has its rights; set a token, or a user and a password"
)
"""A warning for a server beside a cluster that identifies its clients in another way than by passwords."""
FOREIGN: Final = "this request comes from a page of another origin"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Access(Protocol):
    """`token`, or `user` and `password`, are the credentials that clients need; `host` is the address of the server."""

    @property
    def host(self) -> str: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def token(self) -> str | None: ...
    @property
    def user(self) -> str | None: ...
    @property
    def password(self) -> str | None: ...
    @property
    def requires_credentials(self) -> bool: ...


class Refusal(NamedTuple):
    """The HTTP status of a refused request, and the reason."""

    status: int
    reason: str


def check_access(access: Access, prefix: str = "--") -> None:
    """Raise ConfigError if the settings are incomplete or unsafe. `prefix` is the prefix of the command's options."""
    if bool(access.user) != bool(access.password):
        raise ConfigError(f"{prefix}user and {prefix}password go together; set both or neither")
    if not access.requires_credentials and not is_loopback(access.host):
        raise ConfigError(
            f"{prefix}host {access.host} would give access to everyone who can reach this machine; set "
            f"{prefix}token, or {prefix}user and {prefix}password, or listen on 127.0.0.1"
        )


def foreign_host(access: Access, headers: Headers, server: str) -> Refusal | None:
    """Refuse a host name that is not ours if no credentials are required.

    Otherwise a foreign page whose name resolves to this machine (DNS rebinding) could read everything.
    """
    host = _name_in(headers.get("host", ""))
    if access.requires_credentials or is_loopback(host) or host == access.host:
        return None
    return Refusal(421, f"this {server} does not serve the host {headers.get('host', '')!r}")


def foreign_origin(headers: Headers, method: str) -> Refusal | None:
    """Refuse a request from a page of another origin, unless it follows a link. Clients that are no browsers pass."""
    is_harmless = method in SAFE_METHODS and _is_navigation(headers)
    return None if is_harmless or _is_same_origin(headers) else Refusal(403, FOREIGN)


def forbidden_change(access: Access, server: str) -> Refusal | None:
    """Refuse a change if the server is read-only."""
    if access.read_only:
        return Refusal(403, f"this {server} is read-only; start it without --read-only to make changes")
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`. Does not resolve names: any name can be made to point here."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_same_origin(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _is_navigation(headers: Headers) -> bool:
    """Whether the browser opens a page, for example by a link, as opposed to a request from inside another page."""
    mode, target = headers.get("sec-fetch-mode", "navigate"), headers.get("sec-fetch-dest", "document")
    return mode == "navigate" and target == "document"


def _name_in(host: str) -> str:
    """Return the host in a Host header, without the port."""
    if host.startswith("["):
        name, bracket, _ = host[1:].partition("]")
        return name if bracket else ""
    return host.partition(":")[0]
