"""AlterConfigs (key 33), versions 0-2: replace the whole configuration of topics or brokers.

Version 2 added the compact encoding; 1 equals 0. IncrementalAlterConfigs changes single keys.
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@struct
class AlterableConfig:
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[AlterableConfig] = field("0+")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = field("0+")
    validate_only: bool = field("0+", default=False)


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field("0+")
