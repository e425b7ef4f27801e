"""How this broker, and what runs beside it, reaches a listener: client settings with Kafka's names."""

from __future__ import annotations

from skylog.security.config import SecurityConfig
from skylog.security.jaas import parse_jaas
from skylog.security.peer_login import WITH_PASSWORDS


def own_login(config: SecurityConfig, listener: str) -> tuple[str, str, str] | None:
    """Return mechanism, user and password of the broker's own login on a listener; None if its settings have none."""
    for mechanism in reversed(config.of_listener(listener).sasl_enabled_mechanisms):
        if mechanism not in WITH_PASSWORDS:
            continue
        jaas = config.jaas_of(listener, mechanism)
        options = parse_jaas(jaas) if jaas else {}
        if "username" in options and "password" in options:
            return mechanism, options["username"], options["password"]
    return None


def own_client_settings(config: SecurityConfig, listener: str) -> dict[str, str]:
    """Return the settings of a client of this listener; none if it needs none."""
    protocol = config.protocol_of(listener)
    own = config.of_listener(listener)
    if not (protocol.has_tls or protocol.has_login):
        return {}
    found = {"security.protocol": protocol.value}
    if protocol.has_tls:
        found |= {
            "ssl.truststore.location": own.ssl_truststore_location,
            "ssl.truststore.certificates": own.ssl_truststore_certificates,
        }
        if own.ssl_client_auth != "none":
            found |= {
                "ssl.keystore.location": own.ssl_keystore_location,
                "ssl.keystore.certificate.chain": own.ssl_keystore_certificate_chain,
                "ssl.keystore.key": own.ssl_keystore_key,
                "ssl.key.password": own.ssl_key_password,
            }
    login = own_login(config, listener) if protocol.has_login else None
    if login is not None:
        mechanism, user, password = login
        found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas_of(mechanism, user, password)}
    return {key: value for key, value in found.items() if value}


def jaas_of(mechanism: str, user: str, password: str) -> str:
    """Return the JAAS settings of a login."""
    kind = "scram.Scram" if mechanism.startswith("SCRAM-") else "plain.Plain"
    name, secret = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password))
    module = f"org.apache.kafka.common.security.{kind}LoginModule"
    return f'{module} required username="{name}" password="{secret}";'
