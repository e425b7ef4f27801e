"""AlterUserScramCredentials (key 51), version 0: create, replace and delete SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@struct
class ScramCredentialDeletion:
    name: str = field("0+")
    mechanism: Int8 = field("0+")


@struct
class ScramCredentialUpsertion:
    name: str = field("0+")
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")
    salt: bytes = field("0+")
    salted_password: bytes = field("0+")


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Message):
    deletions: list[ScramCredentialDeletion] = field("0+")
    upsertions: list[ScramCredentialUpsertion] = field("0+")


@struct
class AlterUserScramCredentialsResult:
    user: str = field("0+")
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AlterUserScramCredentialsResult] = field("0+")
