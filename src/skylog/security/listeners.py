"""Listeners by name: where the broker listens, what it advertises, and the security protocol of each.

listeners=INTERNAL://10.0.0.1:9092,PUBLIC://0.0.0.0:9093
advertised.listeners=INTERNAL://10.0.0.1:9092,PUBLIC://kafka.example.com:9093
listener.security.protocol.map=INTERNAL:SSL,PUBLIC:SASL_SSL
inter.broker.listener.name=INTERNAL
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from skylog.errors import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
_LISTENER = re.compile(r"(?:(?P<name>[\w.-]+)://)?(?P<host>\[[^\]]+\]|[^:/\[\]]*):(?P<port>\d{1,5})", re.ASCII)


class SecurityProtocol(Enum):
    """Kafka's security protocols: with or without TLS, with or without a login."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_login(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Address(NamedTuple):
    """A listener by name, with the address to listen on or to advertise."""

    name: str
    host: str
    port: int


def parse_listeners(text: str, key: str = "listeners") -> list[Address]:
    """Parse `NAME://host:port,…`. A listener without a name is PLAINTEXT. Raises ConfigError."""
    found: dict[str, Address] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _LISTENER.fullmatch(part)
        if match is None or int(match["port"]) > 0xFFFF:
            raise ConfigError(f"{key}={text}: expected NAME://host:port, such as PLAINTEXT://127.0.0.1:9092")
        name = (match["name"] or PLAINTEXT).upper()
        if name in found:
            raise ConfigError(f"{key}={text}: the name {name} is used twice")
        found[name] = Address(name, match["host"].strip("[]"), int(match["port"]))
    return list(found.values())


def parse_protocols(text: str) -> dict[str, SecurityProtocol]:
    """Parse `NAME:PROTOCOL,…`, on top of Kafka's default: each protocol's name is a listener. Raises ConfigError."""
    protocols = {protocol.value: protocol for protocol in SecurityProtocol}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.partition(":")
        try:
            protocols[name.strip().upper()] = SecurityProtocol[value.strip().upper()]
        except KeyError:
            choices = ", ".join(protocol.value for protocol in SecurityProtocol)
            raise ConfigError(
                f"listener.security.protocol.map={text}: expected NAME:PROTOCOL, with one of {choices}"
            ) from None
    return protocols


def protocol_of(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    """Return the protocol of a listener. Raises ConfigError if it has none."""
    try:
        return protocols[name]
    except KeyError:
        raise ConfigError(f"the listener {name} has no protocol: add it to listener.security.protocol.map") from None


def check_listeners(text: str) -> str | None:
    return _message(lambda: parse_listeners(text))


def check_protocols(text: str) -> str | None:
    return _message(lambda: parse_protocols(text))


def _message(parse: Callable[[], object]) -> str | None:
    try:
        parse()
    except ConfigError as error:
        return str(error).rpartition(": ")[2]
    return None
