"""DescribeUserScramCredentials (key 50), version 0: the users with SCRAM credentials, without secrets (KIP-554)."""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@struct
class UserName:
    name: str = field("0+")


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None = field("0+", nullable="0+")


@struct
class CredentialInfo:
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")


@struct
class DescribeUserScramCredentialsResult:
    user: str = field("0+")
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    credential_infos: list[CredentialInfo] = field("0+", default_factory=list)


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = field("0+", default_factory=list)
