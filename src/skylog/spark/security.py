"""How connections of executors are encrypted and authenticated: TLS, and SASL with PLAIN or SCRAM.

    Security.of({"security.protocol": "SASL_SSL", "ssl.truststore.location": "ca.pem", "sasl.mechanism": "PLAIN", …})

Other mechanisms (GSSAPI, OAUTHBEARER) need librdkafka, which reads messages with them, and cannot write batches.
"""

from __future__ import annotations

import functools
import ssl
import tempfile
from collections.abc import Mapping
from typing import Final, NamedTuple

from skylog.spark.errors import OptionError
from skylog.spark.kafka_settings import library_settings

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NOT_VERIFIED: Final = ("none", "")


class Security(NamedTuple):
    """The security of connections. Certificates and keys are PEM: the name of a file, or the text itself."""

    is_encrypted: bool = False
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    is_verified: bool = True
    has_host_name: bool = True
    mechanism: str | None = None
    user: str = ""
    password: str = ""

    @classmethod
    def of(cls, kafka: Mapping[str, str]) -> Security:
        """Return the security that `kafka.*` options describe. Raises OptionError if it is not supported here."""
        protocol = protocol_of(kafka)
        found = library_settings(kafka)
        mechanism = mechanism_of(kafka) if protocol.startswith("SASL") else None
        if mechanism is not None and mechanism not in MECHANISMS:
            raise OptionError(f"option kafka.sasl.mechanism={mechanism}: expected one of {', '.join(MECHANISMS)}")
        if mechanism is not None and not (found.get("sasl.username") and found.get("sasl.password")):
            raise OptionError(
                f"kafka.sasl.mechanism={mechanism} needs kafka.sasl.jaas.config with username and password"
            )
        return cls(
            is_encrypted=protocol.endswith("SSL"),
            authority=found.get("ssl.ca.pem") or found.get("ssl.ca.location"),
            certificate=found.get("ssl.certificate.pem") or found.get("ssl.certificate.location"),
            key=found.get("ssl.key.pem") or found.get("ssl.key.location"),
            key_password=found.get("ssl.key.password"),
            is_verified=found.get("enable.ssl.certificate.verification", "true").lower() != "false",
            has_host_name=found.get("ssl.endpoint.identification.algorithm", "https").lower() not in _NOT_VERIFIED,
            mechanism=mechanism,
            user=found.get("sasl.username", ""),
            password=found.get("sasl.password", ""),
        )

    def context(self) -> ssl.SSLContext:
        """Return the TLS context, made once in a process. Raises OptionError if a certificate cannot be read."""
        return _context(self)


PLAINTEXT: Final = Security()


def protocol_of(kafka: Mapping[str, str]) -> str:
    """Return the security protocol. Raises OptionError for an unknown one."""
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise OptionError(f"option kafka.security.protocol={protocol}: expected one of {', '.join(_PROTOCOLS)}")
    return protocol


def mechanism_of(kafka: Mapping[str, str]) -> str:
    return (kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "GSSAPI").upper()


def needs_library(kafka: Mapping[str, str]) -> bool:
    """Return whether records must be read through librdkafka: for mechanisms that are not supported here."""
    return protocol_of(kafka).startswith("SASL") and mechanism_of(kafka) not in MECHANISMS


@functools.lru_cache(maxsize=8)
def _context(security: Security) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = security.is_verified and security.has_host_name
    context.verify_mode = ssl.CERT_REQUIRED if security.is_verified else ssl.CERT_NONE
    try:
        if security.authority is not None:
            is_text = _is_text(security.authority)
            context.load_verify_locations(
                None if is_text else security.authority, cadata=security.authority if is_text else None
            )
        if security.certificate is not None:
            _load_certificate(context, security, security.certificate)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise OptionError(f"options kafka.ssl.*: cannot read the certificates or the key: {error}") from error
    return context


def _load_certificate(context: ssl.SSLContext, security: Security, certificate: str) -> None:
    with tempfile.TemporaryDirectory(prefix="skylog-tls-") as directory:  # only its owner may read it

        def file(name: str, text: str) -> str:
            if not _is_text(text):
                return text
            with open(f"{directory}/{name}", "w") as out:
                out.write(text)
            return out.name

        key = None if security.key is None else file("key.pem", security.key)
        context.load_cert_chain(file("certificate.pem", certificate), key, security.key_password)


def _is_text(value: str) -> bool:
    return "-----BEGIN" in value
