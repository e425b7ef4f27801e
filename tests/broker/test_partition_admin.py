"""Administration of partitions on the only broker there is: elections, reassignments, data directories."""

from __future__ import annotations

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from skylog.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from skylog.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from .conftest import MakeTopic
from .process import BrokerProcess
from .raw import RawClient, batch_of

NODE = 1


class TestElectLeaders:
    @pytest.mark.parametrize("version", range(3))
    @pytest.mark.parametrize("election_type", [0, 1])
    def test_the_only_replica_leads_already(
        self, client: RawClient, make_topic: MakeTopic, version: int, election_type: int
    ) -> None:
        topic = make_topic(partitions=2)
        request = ElectLeadersRequest(
            election_type=election_type, topic_partitions=[ElectLeadersTopic(topic=topic, partitions=[1, 0])]
        )
        response = client.ask(request, version)
        assert response.error_code == ErrorCode.NONE
        (row,) = response.replica_election_results
        assert row.topic == topic
        assert [(each.partition_id, each.error_code) for each in row.partition_result] == [
            (1, ErrorCode.ELECTION_NOT_NEEDED),
            (0, ErrorCode.ELECTION_NOT_NEEDED),
        ]
        assert all(each.error_message for each in row.partition_result)

    def test_an_unknown_topic_or_partition_is_an_error(self, client: RawClient, make_topic: MakeTopic) -> None:
        asked = [
            ElectLeadersTopic(topic=make_topic(), partitions=[1, -1]),
            ElectLeadersTopic(topic="none", partitions=[0]),
        ]
        response = client.ask(ElectLeadersRequest(topic_partitions=asked), 2)
        codes = [each.error_code for row in response.replica_election_results for each in row.partition_result]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3

    @pytest.mark.parametrize("version", range(3))
    def test_asked_for_all_it_lists_the_topics_without_the_partitions_that_need_no_election(
        self, client: RawClient, make_topic: MakeTopic, version: int
    ) -> None:
        topic = make_topic()
        response = client.ask(ElectLeadersRequest(topic_partitions=None), version)
        rows = {row.topic: row.partition_result for row in response.replica_election_results}
        assert rows[topic] == []

    def test_an_unknown_type_of_election_is_refused_for_each_partition(
        self, client: RawClient, make_topic: MakeTopic
    ) -> None:
        asked = [ElectLeadersTopic(topic=make_topic(), partitions=[0])]
        response = client.ask(ElectLeadersRequest(election_type=7, topic_partitions=asked), 2)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.INVALID_REQUEST


class TestReassignments:
    def alter(self, client: RawClient, topic: str, partition: int, replicas: list[int] | None) -> ErrorCode:
        row = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[row])])
        response = client.ask(request, 0)
        assert response.error_code == ErrorCode.NONE
        (result,) = response.responses
        assert result.name == topic
        (answer,) = result.partitions
        assert isinstance(answer, ReassignablePartitionResponse)
        assert answer.partition_index == partition
        assert bool(answer.error_message) == (answer.error_code != 0)
        return ErrorCode(answer.error_code)

    def test_the_present_assignment_is_accepted_and_nothing_moves(
        self, client: RawClient, make_topic: MakeTopic
    ) -> None:
        topic = make_topic()
        assert self.alter(client, topic, 0, [NODE]) == ErrorCode.NONE
        response = client.ask(ListPartitionReassignmentsRequest(), 0)
        assert (response.error_code, response.topics) == (ErrorCode.NONE, [])
        assert client.topic(topic).partitions[0].replica_nodes == [NODE]

    def test_there_is_nothing_to_cancel(self, client: RawClient, make_topic: MakeTopic) -> None:
        assert self.alter(client, make_topic(), 0, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    @pytest.mark.parametrize("replicas", [[], [2], [NODE, 2], [NODE, NODE], [-1]])
    def test_an_assignment_that_cannot_be_is_refused(
        self, client: RawClient, make_topic: MakeTopic, replicas: list[int]
    ) -> None:
        assert self.alter(client, make_topic(), 0, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    @pytest.mark.parametrize("replicas", [None, [NODE], [2]])
    def test_an_unknown_topic_or_partition_is_an_error(
        self, client: RawClient, make_topic: MakeTopic, replicas: list[int] | None
    ) -> None:
        assert self.alter(client, "none", 0, replicas) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert self.alter(client, make_topic(), 1, replicas) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_list_for_unknown_topics_is_empty(self, client: RawClient) -> None:
        asked = [ListPartitionReassignmentsTopics(name="none", partition_indexes=[0])]
        response = client.ask(ListPartitionReassignmentsRequest(topics=asked), 0)
        assert (response.error_code, response.topics) == (ErrorCode.NONE, [])


class TestLogDirs:
    @pytest.mark.parametrize("version", range(5))
    def test_every_version_returns_the_directory_and_the_size_of_a_log(
        self, broker: BrokerProcess, client: RawClient, make_topic: MakeTopic, version: int
    ) -> None:
        topic = make_topic(partitions=2)
        client.produce(topic, batch_of(b"value"), partition=1)
        request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[1])])
        (directory,) = client.ask(request, version).results
        assert (directory.error_code, directory.log_dir) == (ErrorCode.NONE, str(broker.data_dir))
        (row,) = directory.topics
        assert [(each.partition_index, each.partition_size > 60, each.is_future_key) for each in row.partitions] == [
            (1, True, False)
        ]

    @pytest.mark.parametrize("version", [1, 2])
    def test_a_log_is_left_where_it_is_and_no_other_directory_is_known(
        self, broker: BrokerProcess, client: RawClient, make_topic: MakeTopic, version: int
    ) -> None:
        topic = make_topic()

        def code(path: str, name: str, partition: int = 0) -> ErrorCode:
            asked = AlterReplicaLogDirTopic(name=name, partitions=[partition])
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
            ((result,),) = [row.partitions for row in client.ask(request, version).results]
            return ErrorCode(result.error_code)

        here = str(broker.data_dir)
        assert code(here, topic) == ErrorCode.NONE
        assert code(here + "x", topic) == ErrorCode.LOG_DIR_NOT_FOUND
        assert code("/", "none") == ErrorCode.LOG_DIR_NOT_FOUND
        assert code(here, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code(here, topic, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_of_two_directories_for_a_partition_the_last_counts(
        self, broker: BrokerProcess, client: RawClient, make_topic: MakeTopic
    ) -> None:
        asked = [AlterReplicaLogDirTopic(name=make_topic(), partitions=[0])]
        dirs = [AlterReplicaLogDir(path=path, topics=asked) for path in ("/elsewhere", str(broker.data_dir))]
        (row,) = client.ask(AlterReplicaLogDirsRequest(dirs=dirs), 2).results
        assert [each.error_code for each in row.partitions] == [ErrorCode.NONE]
