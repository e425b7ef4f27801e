"""DescribeConfigs (key 32), versions 0-4: the configuration of topics and brokers, with the source of each value.

Version 1 added sources and synonyms in place of `is_default` (KIP-226), 3 the type and the documentation (KIP-569), 4
the compact encoding. 2 equals 1.
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@struct
class DescribeConfigsResource:
    """`resource_type` 2 is a topic, 4 a broker. Null requests all keys."""

    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    configuration_keys: list[str] | None = field("0+", nullable="0+", default=None)


@message(api_key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = field("0+")
    include_synonyms: bool = field("1+", default=False)
    include_documentation: bool = field("3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: str = field("1+")
    value: str | None = field("1+", nullable="0+")
    source: Int8 = field("1+")


@struct
class DescribeConfigsResourceResult:
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")
    read_only: bool = field("0+", default=False)
    is_default: bool = field("0", default=False)
    config_source: Int8 = field("1+", default=-1)
    is_sensitive: bool = field("0+", default=False)
    synonyms: list[DescribeConfigsSynonym] = field("1+", default_factory=list)
    config_type: Int8 = field("3+", default=0)
    documentation: str | None = field("3+", nullable="0+", default=None)


@struct
class DescribeConfigsResult:
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[DescribeConfigsResourceResult] = field("0+", default_factory=list)


@message(api_key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[DescribeConfigsResult] = field("0+")
