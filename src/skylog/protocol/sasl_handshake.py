"""SaslHandshake (key 17), versions 0-1: choose the mechanism of a login.

The tokens follow in SaslAuthenticate after version 1, as frames without a header after version 0.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Message, field, message


@message(api_key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Message):
    mechanism: str = field("0+")


@message(api_key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse(Message):
    error_code: Int16 = field("0+", default=0)
    mechanisms: list[str] = field("0+")
