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
from skylog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def test_describe_configs_version_0_marks_default_values() -> None:
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


def test_write_txn_markers_version_0_has_no_compact_types() -> None:
    marker = WritableTxnMarker(
        producer_id=5,
        producer_epoch=2,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[3])],
        coordinator_epoch=4,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    written = request.write(0)
    assert written == (
        b"\0\0\0\x01" b"\0\0\0\0\0\0\0\x05" b"\0\x02\x01"  # one marker: producer, epoch, commit
        b"\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x03"  # one topic with one partition
        b"\0\0\0\x04"  # the coordinator's epoch
    )  # fmt: skip
    assert WriteTxnMarkersRequest.read(written, 0) == (request, len(written))
    row = WritableTxnMarkerPartitionResult(partition_index=3, error_code=6)
    result = WritableTxnMarkerResult(producer_id=5, topics=[WritableTxnMarkerTopicResult(name="t", partitions=[row])])
    assert WriteTxnMarkersResponse(markers=[result]).write(0) == (
        b"\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x03\0\x06"
    )
