"""SaslHandshake (17), version 1: choose the mechanism of a login, or of its repetition (KIP-368)."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    login = context.session.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    return login.handshake(request.mechanism)


API = Api(ApiKey.SASL_HANDSHAKE, 1, 1, handle)
