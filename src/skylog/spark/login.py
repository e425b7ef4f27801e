"""The client's side of a SASL login: PLAIN, and SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677).

    client: n,,n=USER,r=NONCE                        server: r=NONCE+ITS,s=SALT,i=ITERATIONS
    client: c=biws,r=NONCE+ITS,p=PROOF               server: v=SIGNATURE

Pure: `tokens` yields what to send and is sent what came back. `log_in` sends it over a connection.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.schema import Int16, Int64, Message, field, message
from skylog.spark.security import Security

if TYPE_CHECKING:
    from skylog.spark.wire import BrokerConnection

Tokens = Generator[bytes, bytes, None]

_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_FEWEST_ITERATIONS: Final = 4096  # RFC 7677; fewer would be an attempt to learn the password
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1


@message(api_key=17, versions="1", flexible="none")
class SaslHandshakeRequest(Message):
    mechanism: str = field("0+")


@message(api_key=17, versions="1", flexible="none")
class SaslHandshakeResponse(Message):
    error_code: Int16 = field("0+", default=0)
    mechanisms: list[str] = field("0+")


@message(api_key=36, versions="0-1", flexible="none")
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = field("0+")


@message(api_key=36, versions="0-1", flexible="none")
class SaslAuthenticateResponse(Message):
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    auth_bytes: bytes = field("0+", default=b"")
    session_lifetime_ms: Int64 = field("1+", default=0)


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
    digest = _DIGESTS[security.mechanism or ""]
    first = f"n={_escaped(security.user)},r={nonce or secrets.token_urlsafe(24)}"
    challenge = (yield f"n,,{first}".encode()).decode()
    fields = dict(each.split("=", 1) for each in challenge.split(","))
    iterations = int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(first.partition(",r=")[2]) or iterations < _FEWEST_ITERATIONS:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker's SCRAM challenge is not valid")
    salt = base64.b64decode(fields["s"])
    salted = hashlib.pbkdf2_hmac(digest, security.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    last = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge},{last}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{last},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(answer, b"v=" + base64.b64encode(expected)):
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker does not know the user's password")


def _escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")
