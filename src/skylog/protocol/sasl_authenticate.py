"""SaslAuthenticate (key 36), versions 0-2: a token of a login, and the response to it.

Version 1 added how long the session may last before the client logs in again (KIP-368), 2 the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int64, Message, field, message


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = field("0+")


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Message):
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    auth_bytes: bytes = field("0+", default=b"")
    session_lifetime_ms: Int64 = field("1+", default=0)
