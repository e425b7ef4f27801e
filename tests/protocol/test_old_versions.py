"""Versions that Kafka 4 has removed and the oracles no longer know, byte by byte."""

from __future__ import annotations

from skylog.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from skylog.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


def test_describe_configs_version_0_says_whether_a_value_is_the_default() -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["k"])]
    )
    assert request.write(0) == b"\0\0\0\x01\x02\0\x01t\0\0\0\x01\0\x01k"
    config = DescribeConfigsResourceResult(name="k", value="v", read_only=True, is_default=True, is_sensitive=False)
    response = DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_type=2, resource_name="t", configs=[config])]
    )
    written = response.write(0)
    assert written == (
        b"\0\0\0\0"  # throttle time
        b"\0\0\0\x01\0\0\xff\xff\x02\0\x01t"  # one result: no error, no message, topic t
        b"\0\0\0\x01\0\x01k\0\x01v\x01\x01\0"  # one config: read only, the default, not sensitive
    )
    assert DescribeConfigsResponse.read(written, 0) == (response, len(written))


def test_describe_log_dirs_version_0_is_as_version_1() -> None:
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[3])])
    assert request.write(0) == request.write(1) == b"\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x03"
