"""Settings of listeners, TLS and logins. Each field is a key of Kafka's broker configuration.

A key of TLS or SASL may be set for one listener, as `listener.name.NAME.KEY`, and JAAS settings also for one mechanism,
as `listener.name.NAME.MECHANISM.sasl.jaas.config`. Passwords, keys and certificates are of the type `password`: their
values are never logged or returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from skylog.config import UpdateMode, parse, setting, settings
from skylog.security.listeners import (
    Address,
    SecurityProtocol,
    check_listeners,
    check_protocols,
    parse_listeners,
    parse_protocols,
    protocol_of,
)
from skylog.security.principal_mapping import check_rules

LISTENER_PREFIX: Final = "listener.name."
_OF_A_LISTENER: Final = ("ssl.", "sasl.", "connections.max.reauth.ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Who may connect, and how. `by_listener` has the keys that are set for one listener."""

    inter_broker_listener_name: str = setting(
        "inter.broker.listener.name", "", "The listener that other brokers use. By default the first one."
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "",
        "The security protocol of each listener, as NAME:PROTOCOL,…: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. A "
        "listener that has the name of a protocol needs no entry.",
        check=check_protocols,
    )
    listeners: str = setting(
        "listeners",
        "",
        "The listeners, as NAME://host:port,…. By default one PLAINTEXT listener, on --host and --port; if these are "
        "given, they replace the address of the first listener.",
        check=check_listeners,
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        "none",
        "Whether clients must present a certificate.",
        choices=("none", "requested", "required"),
        update_mode=UpdateMode.PER_BROKER,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are accepted.",
        choices=("TLSv1.2", "TLSv1.3"),
        update_mode=UpdateMode.PER_BROKER,
    )
    ssl_key_password: str = setting(
        "ssl.key.password",
        "",
        "The password of the key, if it is encrypted.",
        kind="password",
        update_mode=UpdateMode.PER_BROKER,
    )
    ssl_keystore_certificate_chain: str = setting(
        "ssl.keystore.certificate.chain",
        "",
        "The broker's certificate and those that sign it, as PEM text.",
        kind="password",
        update_mode=UpdateMode.PER_BROKER,
    )
    ssl_keystore_key: str = setting(
        "ssl.keystore.key",
        "",
        "The key of the broker's certificate, as PEM text.",
        kind="password",
        update_mode=UpdateMode.PER_BROKER,
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        "",
        "A PEM file with the broker's key and certificates. It is read again when it changes.",
        update_mode=UpdateMode.PER_BROKER,
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type", "PEM", "The format of the key store. Java's formats are not supported.", choices=("PEM",)
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "How the distinguished name of a client's certificate becomes its principal: rules "
        "RULE:pattern/replacement/[LU], of which the first that matches counts, or DEFAULT for the name itself.",
        check=check_rules,
    )
    ssl_truststore_certificates: str = setting(
        "ssl.truststore.certificates",
        "",
        "The certificates that sign those of clients, as PEM text.",
        kind="password",
        update_mode=UpdateMode.PER_BROKER,
    )
    ssl_truststore_location: str = setting(
        "ssl.truststore.location",
        "",
        "A PEM file with the certificates that sign those of clients. It is read again when it changes.",
        update_mode=UpdateMode.PER_BROKER,
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "PEM",
        "The format of the trust store. Java's formats are not supported.",
        choices=("PEM",),
    )
    by_listener: Mapping[str, str] = field(default_factory=dict)

    def addresses(self) -> list[Address]:
        return parse_listeners(self.listeners)

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """Return the protocol of a listener. Raises ConfigError if it has none."""
        return protocol_of(listener, parse_protocols(self.listener_security_protocol_map))

    def of_listener(self, name: str) -> SecurityConfig:
        """Return the configuration with the keys that are set for this listener."""
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own = {key.removeprefix(prefix): value for key, value in self.by_listener.items() if key.startswith(prefix)}
        known = settings(SecurityConfig)
        return parse(SecurityConfig, {key: value for key, value in own.items() if key in known}, self)


def key_of_listener(key: str) -> str | None:
    """Return the key that `listener.name.NAME.KEY` sets for a listener, None if there is no such key."""
    _, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
    return rest if rest.startswith(_OF_A_LISTENER) and rest in settings(SecurityConfig) else None
