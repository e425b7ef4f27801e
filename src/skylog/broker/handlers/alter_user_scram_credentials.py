"""AlterUserScramCredentials (51), version 0: set and delete the SCRAM credentials of users (KIP-554).

The client salts the password, so the broker never gets it. A user has one result, and all its changes are made together
or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.store_errors import as_kafka_errors
from skylog.broker.unique_names import unique
from skylog.cluster.scram_users import Credentials
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from skylog.protocol.apis import ApiKey
from skylog.security.acl import AclOperation
from skylog.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, Credential, Mechanism

Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(context: Context, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    by_user: dict[str, list[Change]] = {}
    changes: Iterable[Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
    return AlterUserScramCredentialsResponse(
        results=[await _alter(context, name, wanted) for name, wanted in by_user.items()]
    )


def _refuse(request: AlterUserScramCredentialsRequest, code: ErrorCode) -> AlterUserScramCredentialsResponse:
    changes: Iterable[Change] = [*request.deletions, *request.upsertions]
    names = unique(change.name for change in changes)
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=name, error_code=code) for name in names]
    )


async def _alter(context: Context, name: str, changes: list[Change]) -> AlterUserScramCredentialsResult:
    try:
        new = _checked(name, changes)

        def decide(stored: Credentials) -> Credentials:
            missing = [mechanism for mechanism, value in new.items() if value is None and mechanism not in stored]
            if missing:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"user {name} has no credential of {missing[0]}")
            return {mechanism: value for mechanism, value in {**stored, **new}.items() if value is not None}

        with as_kafka_errors():
            await context.broker.users.load()
            await context.broker.users.change(name, decide)
    except KafkaError as error:
        return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
    return AlterUserScramCredentialsResult(user=name)


def _checked(name: str, changes: list[Change]) -> dict[str, dict[str, Any] | None]:
    """Return the new credentials by mechanism, None for one to delete. Raises KafkaError."""
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user needs a name")
    found: dict[str, dict[str, Any] | None] = {}
    for change in changes:
        try:
            mechanism = Mechanism(change.mechanism)
        except ValueError:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "unknown SCRAM mechanism") from None
        if mechanism.wire_name in found:
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, f"{mechanism.wire_name} of {name} is changed twice")
        if isinstance(change, ScramCredentialDeletion):
            found[mechanism.wire_name] = None
            continue
        if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
            allowed = f"{MIN_ITERATIONS} to {MAX_ITERATIONS}"
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"the iterations must be {allowed}")
        if not change.salt or not change.salted_password:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a credential needs a salt and a salted password")
        salted = bytes(change.salt), bytes(change.salted_password)
        found[mechanism.wire_name] = Credential.of_salted(mechanism, *salted, change.iterations).to_value()
    return found


API = Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, handle, needs=(cluster(AclOperation.ALTER),), refuse=_refuse)
