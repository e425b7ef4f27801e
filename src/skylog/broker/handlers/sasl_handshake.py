"""SaslHandshake (17), versions 0-1: choose the mechanism of a login, or of its repetition (KIP-368).

After version 0 the tokens follow without a header, after version 1 in SaslAuthenticate.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    login = context.session.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    return login.handshake(request.mechanism, raw_tokens=context.version == 0)


API = Api(ApiKey.SASL_HANDSHAKE, 0, 1, handle)
