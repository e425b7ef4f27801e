"""ApiVersions (18), versions 0-4: what this broker serves, read off the table of handlers.

A version from the future is answered in the form of version 0 with UNSUPPORTED_VERSION and the whole list, so that
the client can choose again (KIP-511).

Of Kafka's features (KIP-584) only `metadata.version` is listed, at the level of Kafka 3.9, from which tools read what
the cluster speaks like. The others would promise something: `transaction.version` 2 makes Java's producers add
partitions to transactions in Produce, `group.version` stands for KIP-848, `kraft.version` for a quorum of controllers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode
from skylog.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from skylog.protocol.apis import ApiKey

METADATA_VERSION: Final = "metadata.version"
KAFKA_3_0: Final = 1
KAFKA_3_9: Final = 21
FEATURES_EPOCH: Final = 0  # it would rise with every change of a feature's level

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(
        api_keys=advertised(context.broker.apis),
        supported_features=[SupportedFeatureKey(name=METADATA_VERSION, min_version=KAFKA_3_0, max_version=KAFKA_3_9)],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=METADATA_VERSION, min_version_level=KAFKA_3_9, max_version_level=KAFKA_3_9)
        ],
    )


def unsupported_version(apis: Iterable[Api]) -> ApiVersionsResponse:
    """The answer to a version that is not known here."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised(apis))


def advertised(apis: Iterable[Api]) -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=api.key,
            min_version=api.low if api.advertised_from is None else api.advertised_from,
            max_version=api.high,
        )
        for api in sorted(apis, key=lambda each: each.key)
    ]


API = Api(ApiKey.API_VERSIONS, 0, 4, handle)
