"""AlterMirrors (20001), version 0: create, pause, resume, promote or delete a mirror, at any broker."""

from __future__ import annotations

import json
from typing import Any

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.store_errors import as_kafka_errors
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.mirrors import AlterMirrorsRequest, AlterMirrorsResponse
from skylog.replication.mirror import Mirror
from skylog.security.acl import AclOperation


async def handle(context: Context, request: AlterMirrorsRequest) -> AlterMirrorsResponse:
    try:
        with as_kafka_errors():
            await _alter(context, request)
    except KafkaError as error:
        return AlterMirrorsResponse(error_code=error.code, error_message=error.message)
    return AlterMirrorsResponse()


async def _alter(context: Context, request: AlterMirrorsRequest) -> None:
    mirrors = context.broker.mirrors
    try:
        given: dict[str, Any] = json.loads(request.document)
        match request.action:
            case "create":
                await mirrors.create(_definition(request.name, given))
            case "pause" | "resume":
                await mirrors.set_paused(request.name, request.action == "pause")
            case "promote":
                topics = given.get("topics")
                await mirrors.promote(request.name, None if topics is None else [str(each) for each in topics])
            case "delete":
                await mirrors.promote(request.name, None, ends=True)
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"mirrors have no action '{request.action}'")
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request is not valid: {error!r}") from error


def _definition(name: str, given: dict[str, Any]) -> Mirror:
    return Mirror(
        name,
        str(given["source"]),
        tuple(map(str, given["topics"])),
        tuple(map(str, given.get("groups", ()))),
        str(given.get("prefix", "")),
        {str(key): str(value) for key, value in given.get("client", {}).items()},
        adopts=bool(given.get("adopts", False)),
    )


API = Api(ApiKey.ALTER_MIRRORS, 0, 0, handle, needs=(cluster(AclOperation.ALTER),))
