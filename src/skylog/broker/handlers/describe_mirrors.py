"""DescribeMirrors (20000), version 0: the mirrors of the cluster, with the partitions that this broker leads."""

from __future__ import annotations

import json

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.errors import KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.mirrors import DescribeMirrorsRequest, DescribeMirrorsResponse
from skylog.security.acl import AclOperation


def handle(context: Context, request: DescribeMirrorsRequest) -> DescribeMirrorsResponse:
    mirrors = context.broker.mirrors
    try:
        wanted = mirrors.all() if request.name is None else [mirrors.get(request.name)]
    except KafkaError as error:
        return DescribeMirrorsResponse(error_code=error.code, error_message=error.message)
    return DescribeMirrorsResponse(document=json.dumps([mirrors.describe(each) for each in wanted]))


API = Api(ApiKey.DESCRIBE_MIRRORS, 0, 0, handle, needs=(cluster(AclOperation.DESCRIBE),))
