"""DescribeUserScramCredentials (50), version 0: the users with SCRAM credentials, and their iterations (KIP-554)."""

from __future__ import annotations

from collections import Counter

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.store_errors import as_kafka_errors
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from skylog.security.acl import AclOperation
from skylog.security.scram import MECHANISMS


async def handle(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    users = context.broker.users
    try:
        with as_kafka_errors():
            await users.load()
    except KafkaError as error:
        return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=error.message)
    if not request.users:
        return DescribeUserScramCredentialsResponse(results=[_describe(context, name) for name in users.names()])
    asked = Counter(user.name for user in request.users)
    return DescribeUserScramCredentialsResponse(
        results=[_describe(context, name) if count == 1 else _refuse_repeated(name) for name, count in asked.items()]
    )


def _describe(context: Context, name: str) -> DescribeUserScramCredentialsResult:
    stored = context.broker.users.get(name)
    if not stored:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"there are no SCRAM credentials of user {name}",
        )
    infos = [
        CredentialInfo(mechanism=MECHANISMS[mechanism], iterations=value["iterations"])
        for mechanism, value in sorted(stored.items())
        if mechanism in MECHANISMS
    ]
    return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)


def _refuse_repeated(name: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=f"user {name} is named more than once"
    )


API = Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, handle, needs=(cluster(AclOperation.DESCRIBE),))
