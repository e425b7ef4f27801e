"""IncrementalAlterConfigs (key 44), versions 0-1: change single configuration keys of topics or brokers (KIP-339).

Version 1 added the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@struct
class AlterableConfig:
    """`config_operation` is 0 to set, 1 to delete, 2 to append to a list, 3 to subtract from one."""

    name: str = field("0+")
    config_operation: Int8 = field("0+")
    value: str | None = field("0+", nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[AlterableConfig] = field("0+")


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = field("0+")
    validate_only: bool = field("0+", default=False)


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field("0+")
