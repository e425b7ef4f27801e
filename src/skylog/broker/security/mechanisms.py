"""The SASL mechanisms of a listener, from its settings."""

from __future__ import annotations

from collections.abc import Callable

from skylog.cluster.scram_users import ScramUsers
from skylog.errors import ConfigError
from skylog.security.config import SecurityConfig
from skylog.security.jaas import parse_jaas, plain_users
from skylog.security.own_client import own_login
from skylog.security.plain import PlainExchange
from skylog.security.sasl import Exchange
from skylog.security.scram import MECHANISMS, Credential, Decoy, Mechanism, ScramExchange

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"

Begin = Callable[[], Exchange]


def mechanisms(name: str, config: SecurityConfig, users: ScramUsers) -> dict[str, Begin]:
    """Return what begins a login, by mechanism. Raises ConfigError if a mechanism lacks settings."""
    found: dict[str, Begin] = {}
    for mechanism in config.of_listener(name).sasl_enabled_mechanisms:
        if mechanism in MECHANISMS:
            found[mechanism] = _scram(MECHANISMS[mechanism], users)
        elif mechanism == PLAIN:
            found[mechanism] = _plain(name, config)
        else:
            found[mechanism] = _oauth(config.of_listener(name))
    return found


async def add_own_user(name: str, config: SecurityConfig, users: ScramUsers) -> None:
    """Add the user that the broker itself logs in as, unless there is one: nobody could log in to add the first."""
    login = own_login(config, name)
    if login is None or login[0] not in MECHANISMS:
        return
    mechanism, user, password = login
    if mechanism not in users.get(user):
        new = Credential.of_password(MECHANISMS[mechanism], password).to_value()
        await users.change(user, lambda stored: stored if mechanism in stored else {**stored, mechanism: new})


def _scram(mechanism: Mechanism, users: ScramUsers) -> Begin:
    def find(user: str, wanted: Mechanism) -> Credential | None:
        stored = users.get(user).get(wanted.wire_name)
        return Credential.from_value(dict(stored)) if stored is not None else None

    def begin() -> ScramExchange:
        kind = users.usual_kind(mechanism.wire_name)
        return ScramExchange(mechanism, find, Decoy(users.seed) if kind is None else Decoy(users.seed, *kind))

    return begin


def _plain(name: str, config: SecurityConfig) -> Begin:
    jaas = config.jaas_of(name, PLAIN)
    passwords = plain_users(parse_jaas(jaas)) if jaas else {}
    if not passwords:
        raise ConfigError(
            f"PLAIN needs users: listener.name.{name.lower()}.plain.sasl.jaas.config=org.apache.kafka.common.security."
            'plain.PlainLoginModule required user_NAME="PASSWORD";'
        )
    return lambda: PlainExchange(passwords)


def _oauth(config: SecurityConfig) -> Begin:
    try:
        from skylog.broker.security.key_source import KeySource
        from skylog.security.oauth import OAuthExchange, TokenRules
    except ImportError as error:
        raise ConfigError(f"OAUTHBEARER requires pip install 'skylog[secure]': {error}") from error
    source = KeySource(config.sasl_oauthbearer_jwks_endpoint_url, config.sasl_oauthbearer_jwks_endpoint_refresh_ms)
    rules = TokenRules(
        audiences=config.sasl_oauthbearer_expected_audience,
        issuer=config.sasl_oauthbearer_expected_issuer,
        user_claim=config.sasl_oauthbearer_sub_claim_name,
        clock_skew_s=float(config.sasl_oauthbearer_clock_skew_seconds),
    )
    return lambda: OAuthExchange(source.current(), rules, on_unknown_key=source.note_failure)
