"""SaslAuthenticate (36), versions 0-2: one token of a login. The response to a wrong one comes after a delay."""

from __future__ import annotations

from collections.abc import Awaitable

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(
    context: Context, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    login = context.session.login
    if login is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="this listener has no logins"
        )
    return login.authenticate(bytes(request.auth_bytes))


API = Api(ApiKey.SASL_AUTHENTICATE, 0, 2, handle)
