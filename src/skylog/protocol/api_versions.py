"""ApiVersions (key 18), versions 0-4: which APIs and versions the broker serves.

Version 1 added the throttle time, 3 the compact encoding, the client's name and version, and feature levels (KIP-511,
KIP-584). 2 equals 1; 4 differs from 3 only in allowing features with a minimum version of 0.

The response header is version 0 in every version, because the client does not know the broker's versions yet. A broker
that does not know the requested version responds in version 0, with UNSUPPORTED_VERSION and its own range for this API.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    client_software_name: str = field("3+", default="")
    client_software_version: str = field("3+", default="")


@struct
class ApiVersion:
    api_key: Int16 = field("0+")
    min_version: Int16 = field("0+")
    max_version: Int16 = field("0+")


@struct
class SupportedFeatureKey:
    name: str = field("3+")
    min_version: Int16 = field("3+")
    max_version: Int16 = field("3+")


@struct
class FinalizedFeatureKey:
    name: str = field("3+")
    max_version_level: Int16 = field("3+")
    min_version_level: Int16 = field("3+")


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse(Message):
    error_code: Int16 = field("0+", default=0)
    api_keys: list[ApiVersion] = field("0+")
    throttle_time_ms: Int32 = field("1+", default=0)
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0, default_factory=list)
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2, default_factory=list)
    zk_migration_ready: bool = field("3+", tag=3, default=False)
