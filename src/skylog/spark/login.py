"""Logs an executor's connection in, with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.

`tokens` yields what to send, and gets what came back. `log_in` sends it over a connection.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from skylog.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from skylog.security.sasl import LoginError
from skylog.security.scram import MECHANISMS, ScramLogin
from skylog.spark.security import Security

if TYPE_CHECKING:
    from skylog.spark.wire import BrokerConnection

Tokens = Generator[bytes, bytes, None]

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1


def log_in(connection: BrokerConnection, security: Security) -> None:
    """Log in with the mechanism of `security`. Raises KafkaError if the broker refuses, which no retry changes."""
    assert security.mechanism is not None
    offered = connection.ask(
        SaslHandshakeRequest(mechanism=security.mechanism), _HANDSHAKE_VERSION, SaslHandshakeResponse
    )
    if offered.error_code:
        known = ", ".join(offered.mechanisms) or "none"
        raise KafkaError(
            ErrorCode(offered.error_code),
            f"{connection.address} does not support {security.mechanism}; it supports {known}",
        )
    exchange = tokens(security)
    token = next(exchange)
    while True:
        version = connection.version(SaslAuthenticateRequest, _AUTHENTICATE_VERSION)
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=token), version, SaslAuthenticateResponse)
        if answer.error_code:
            reason = answer.error_message or ErrorCode(answer.error_code).name
            raise KafkaError(
                ErrorCode(answer.error_code), f"{connection.address} refuses user '{security.user}': {reason}"
            )
        try:
            token = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            return


def tokens(security: Security, nonce: str | None = None) -> Tokens:
    """Yield the client's tokens. Send it the server's. Raises KafkaError if the server does not know the password."""
    if security.mechanism == "PLAIN":
        yield f"\0{security.user}\0{security.password}".encode()
        return
    login = ScramLogin(MECHANISMS[security.mechanism or ""], security.user, security.password, nonce)
    try:
        login.verify((yield login.final((yield login.first()))))
    except LoginError as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from error
