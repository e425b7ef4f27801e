"""ApiVersions (18), versions 0-4: the APIs that this broker serves, from the table of handlers.

The response to an unknown version has the format of version 0, UNSUPPORTED_VERSION and the whole list, so that the
client can choose another version (KIP-511).

Of Kafka's features (KIP-584) two are listed: `metadata.version`, at the level of Kafka 3.9, which tools use as the
version of the cluster, and `group.version` 1, the consumer group protocol (KIP-848). The others would announce features
that skylog does not have: `transaction.version` 2 makes Java's producers add partitions to transactions in Produce, and
`kraft.version` means a quorum of controllers.
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
GROUP_VERSION: Final = "group.version"
FEATURES: Final = {METADATA_VERSION: (1, 21), GROUP_VERSION: (0, 1)}
"""The lowest and highest level of each feature, in Kafka's numbers: Kafka 3.0 to 3.9, without and with KIP-848.

The highest level is in use.
"""
FEATURES_EPOCH: Final = 0  # would increase with each change of a feature's level

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        context.session.software = f"{request.client_software_name} {request.client_software_version}"
    return ApiVersionsResponse(
        api_keys=advertised(context.broker.apis),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in FEATURES.items()
            if low > 0 or context.version >= 4  # older clients reject a lowest level of 0
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=high, max_version_level=high)
            for name, (_, high) in FEATURES.items()
        ],
    )


def unsupported_version(apis: Iterable[Api]) -> ApiVersionsResponse:
    """Return the response to an unknown version of ApiVersions."""
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
