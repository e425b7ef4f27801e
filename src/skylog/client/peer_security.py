"""TLS and logins of the connections that do not go through librdkafka, from the same settings."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skylog.errors import ConfigError
from skylog.net.peer import PeerSecurity
from skylog.net.tls import TlsConfig, client_context
from skylog.security.peer_login import WITH_PASSWORDS, password_login

_SYSTEM: Final = "probe"  # librdkafka's word for the authorities of the system
_DEFAULT_MECHANISM: Final = "GSSAPI"


def peer_security(settings: Mapping[str, object]) -> PeerSecurity | None:
    """Return how to connect, given settings with librdkafka's names; None in plain text. Raises ConfigError."""
    protocol = _text(settings, "security.protocol").upper() or "PLAINTEXT"
    context = _context(settings) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return None if context is None else PeerSecurity(lambda: context)
    mechanism = (_text(settings, "sasl.mechanisms") or _DEFAULT_MECHANISM).upper()
    if mechanism not in WITH_PASSWORDS:
        raise ConfigError(f"this supports the mechanisms {', '.join(WITH_PASSWORDS)}, not {mechanism}")
    login = password_login(mechanism, _text(settings, "sasl.username"), _text(settings, "sasl.password"))
    return PeerSecurity(None if context is None else lambda: context, login)


def _context(settings: Mapping[str, object]) -> ssl.SSLContext:
    is_verified = _text(settings, "enable.ssl.certificate.verification").lower() != "false"
    checks_host = _text(settings, "ssl.endpoint.identification.algorithm").lower() != "none"
    config = TlsConfig(
        certificate_chain=_pem(settings, "ssl.certificate"),
        key=_pem(settings, "ssl.key"),
        key_password=_text(settings, "ssl.key.password"),
        trusted=_pem(settings, "ssl.ca"),
    )
    context = client_context(config, checks_host=is_verified and checks_host)
    if not is_verified:
        context.verify_mode = ssl.CERT_NONE
    return context


def _pem(settings: Mapping[str, object], key: str) -> str:
    """Return the text of a setting, or that of the file which another one names."""
    path = _text(settings, f"{key}.location")
    if _text(settings, f"{key}.pem") or path in ("", _SYSTEM):
        return _text(settings, f"{key}.pem")
    try:
        return Path(path).read_text("ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {key}.location={path}: {error}") from error


def _text(settings: Mapping[str, object], key: str) -> str:
    return str(settings.get(key, ""))
