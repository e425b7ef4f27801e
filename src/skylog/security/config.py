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
from skylog.errors import ConfigError
from skylog.security.acl import check_principal
from skylog.security.authorizer import parse_super_users
from skylog.security.jaas import check_jaas
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
_JAAS: Final = "sasl.jaas.config"


AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)


def _check_authorizer(name: str) -> str | None:
    return f"expected {' or '.join(AUTHORIZERS)}" if name and name not in AUTHORIZERS else None


def _check_super_users(text: str) -> str | None:
    try:
        for principal in parse_super_users(text):
            check_principal(principal)
    except ConfigError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Who may connect, and how. `by_listener` has the keys that are set for one listener."""

    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether everybody may use a resource that no ACL applies to. Otherwise only super users may.",
    )
    authorizer_class_name: str = setting(
        "authorizer.class.name",
        "",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer turns access control lists on. Empty: everybody may "
        "do everything.",
        check=_check_authorizer,
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        100,
        "How long the broker waits before it answers a failed login and closes the connection.",
        kind="int",
        minimum=0,
        maximum=60_000,
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        0,
        "Close connections whose clients do not log in again within this time; 0: they need not.",
        minimum=0,
    )
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
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "How clients log in.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    )
    sasl_jaas_config: str = setting(
        "sasl.jaas.config",
        "",
        'Options of a mechanism: the users of PLAIN, as user_NAME="PASSWORD". Set it for a listener and mechanism: '
        "listener.name.NAME.plain.sasl.jaas.config.",
        kind="password",
        check=check_jaas,
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the clock of the issuer of tokens may be off.",
        kind="int",
        minimum=0,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        (),
        "A token must be meant for one of these audiences. Empty: it is not checked.",
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "sasl.oauthbearer.expected.issuer", "", "The issuer of tokens. Empty: it is not checked."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "How often the keys of a URL are read again. A file is read again when it changes.",
        minimum=1000,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        "",
        "A file: or https: URL of the keys (JWKS) that sign tokens. OAUTHBEARER requires it.",
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token that names the user."
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        524_288,
        "The largest request before the login.",
        kind="int",
        minimum=1024,
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
    super_users: str = setting(
        "super.users",
        "",
        "Principals who may do everything, as User:NAME;User:NAME. Brokers must be among them.",
        check=_check_super_users,
    )
    by_listener: Mapping[str, str] = field(default_factory=dict, repr=False)  # it has secrets

    def addresses(self) -> list[Address]:
        return parse_listeners(self.listeners)

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """Return the protocol of a listener. Raises ConfigError if it has none."""
        return protocol_of(listener, parse_protocols(self.listener_security_protocol_map))

    def jaas_of(self, listener: str, mechanism: str) -> str:
        """Return the JAAS settings of a mechanism on a listener, empty if there are none."""
        return self.by_listener.get(_jaas_key(listener, mechanism), self.of_listener(listener).sasl_jaas_config)

    def of_listener(self, name: str) -> SecurityConfig:
        """Return the configuration with the keys that are set for this listener."""
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        own = {key.removeprefix(prefix): value for key, value in self.by_listener.items() if key.startswith(prefix)}
        known = settings(SecurityConfig)
        return parse(SecurityConfig, {key: value for key, value in own.items() if key in known}, self)


def _jaas_key(listener: str, mechanism: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{_JAAS}"


def key_of_listener(key: str) -> str | None:
    """Return the key that `listener.name.NAME.KEY` sets for a listener, None if there is no such key."""
    _, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism, _, of_mechanism = rest.partition(".")
    if of_mechanism == _JAAS and mechanism.upper() in settings(SecurityConfig)["sasl.enabled.mechanisms"].choices:
        return _JAAS
    return rest if rest.startswith(_OF_A_LISTENER) and rest in settings(SecurityConfig) else None
