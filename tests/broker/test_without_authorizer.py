"""Kafka's responses without an authorizer: ACLs are disabled, every operation is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.create_acls import AclCreation, CreateAclsRequest
from skylog.protocol.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from skylog.protocol.describe_acls import DescribeAclsRequest
from skylog.protocol.describe_cluster import DescribeClusterRequest
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.list_config_resources import ListConfigResourcesRequest
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic

from .conftest import MakeTopic
from .raw import RawClient

NOT_REQUESTED = -(2**31)
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (1 << bit for bit in range(3, 9))
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (1 << bit for bit in range(9, 13))
OF_A_TOPIC = READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
OF_A_GROUP = READ | DELETE | DESCRIBE
OF_THE_CLUSTER = CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE


class TestAuthorizedOperations:
    @pytest.mark.parametrize("version", range(8, 13))
    @pytest.mark.parametrize("asked", [False, True])
    def test_metadata_returns_those_of_topics_if_requested(
        self, client: RawClient, make_topic: MakeTopic, version: int, asked: bool
    ) -> None:
        topic = make_topic()
        for topics in (None, [MetadataRequestTopic(name=topic)]):
            request = MetadataRequest(
                topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=asked
            )
            response = client.ask(request, version)
            operations = {row.name: row.topic_authorized_operations for row in response.topics}
            assert operations[topic] == (OF_A_TOPIC if asked else NOT_REQUESTED)

    @pytest.mark.parametrize("version", [8, 9, 10])
    @pytest.mark.parametrize("asked", [False, True])
    def test_metadata_returns_those_of_the_cluster_if_requested(
        self, client: RawClient, version: int, asked: bool
    ) -> None:
        request = MetadataRequest(topics=[], include_cluster_authorized_operations=asked)
        operations = client.ask(request, version).cluster_authorized_operations
        assert operations == (OF_THE_CLUSTER if asked else NOT_REQUESTED)

    @pytest.mark.parametrize("version", [0, 1])
    @pytest.mark.parametrize("asked", [False, True])
    def test_describe_cluster_returns_them_if_requested(self, client: RawClient, version: int, asked: bool) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
        operations = client.ask(request, version).cluster_authorized_operations
        assert operations == (OF_THE_CLUSTER if asked else NOT_REQUESTED)

    @pytest.mark.parametrize("version", [3, 4, 5])
    @pytest.mark.parametrize("asked", [False, True])
    def test_describe_groups_returns_them_if_requested(self, client: RawClient, version: int, asked: bool) -> None:
        assert client.ask(FindCoordinatorRequest(key="g"), 0).error_code == ErrorCode.NONE
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=asked)
        (group,) = client.ask(request, version).groups
        assert group.error_code == ErrorCode.NONE
        assert group.authorized_operations == (OF_A_GROUP if asked else NOT_REQUESTED)


class TestAcls:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_they_cannot_be_described_created_or_deleted(self, client: RawClient, version: int) -> None:
        anything: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        described = client.ask(
            DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1, **anything), version
        )
        assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
        assert described.error_message
        creation = AclCreation(
            resource_type=2, resource_name="t", principal="User:u", host="*", operation=3, permission_type=3
        )
        created = client.ask(CreateAclsRequest(creations=[creation] * 2), version)
        assert [row.error_code for row in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        chosen = DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1, **anything)
        deleted = client.ask(DeleteAclsRequest(filters=[chosen] * 2), version)
        assert [(row.error_code, row.matching_acls) for row in deleted.filter_results] == [
            (ErrorCode.SECURITY_DISABLED, [])
        ] * 2


def test_there_are_no_subscriptions_to_client_metrics(client: RawClient) -> None:
    response = client.ask(ListConfigResourcesRequest(), 0)
    assert (response.error_code, response.config_resources) == (ErrorCode.NONE, [])
