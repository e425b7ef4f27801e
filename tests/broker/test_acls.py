"""Access control lists: every API without rights and with exactly the declared ones, and what they reveal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)
from confluent_kafka.admin import AclOperation as NativeOperation
from confluent_kafka.admin import ResourceType as NativeType

from skylog.broker.handlers import APIS
from skylog.broker.security.access import ERRORS, AccessControl
from skylog.broker.session import Session
from skylog.errors import ErrorCode
from skylog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from skylog.protocol.apis import ApiKey
from skylog.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from skylog.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from skylog.protocol.create_acls import AclCreation, CreateAclsRequest
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.describe_acls import DescribeAclsRequest
from skylog.protocol.describe_cluster import DescribeClusterRequest
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest
from skylog.protocol.fetch import ReplicaState
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.list_groups import ListGroupsRequest
from skylog.protocol.list_transactions import ListTransactionsRequest
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from skylog.security.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)

from .conftest import create_topic
from .every_request import EVERY_REQUEST, Named
from .process import BrokerThread, until
from .raw import RawClient, batch_of, fetch_request, produce_request
from .test_sasl import log_in_plainly, port_of

OPEN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER}
DENIALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": 'x.PlainLoginModule required user_walker="w" user_reader="r";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # the PLAINTEXT listener is the administrator's
}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER
DELETE, CREATE, CLUSTER_ACTION = AclOperation.DELETE, AclOperation.CREATE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
SUFFICIENT = {
    DESCRIBE: {DESCRIBE, READ, WRITE, DELETE, ALTER},
    DESCRIBE_CONFIGS: {DESCRIBE_CONFIGS, ALTER_CONFIGS},
}
"""What else includes an operation."""
KAFKAS_RIGHTS: dict[ApiKey, list[tuple[ResourceType, AclOperation]]] = {
    ApiKey.ADD_OFFSETS_TO_TXN: [(TRANSACTIONAL_ID, WRITE), (GROUP, READ)],
    ApiKey.ADD_PARTITIONS_TO_TXN: [(TRANSACTIONAL_ID, WRITE), (TOPIC, WRITE)],
    ApiKey.ALTER_CLIENT_QUOTAS: [(CLUSTER, ALTER_CONFIGS)],
    ApiKey.ALTER_CONFIGS: [(TOPIC, ALTER_CONFIGS)],
    ApiKey.ALTER_MIRRORS: [(CLUSTER, ALTER)],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [(CLUSTER, ALTER)],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [(CLUSTER, ALTER)],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [(CLUSTER, ALTER)],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [(GROUP, DESCRIBE)],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [(GROUP, READ), (TOPIC, DESCRIBE)],
    ApiKey.CREATE_ACLS: [(CLUSTER, ALTER)],
    ApiKey.CREATE_PARTITIONS: [(TOPIC, ALTER)],
    ApiKey.CREATE_TOPICS: [(TOPIC, CREATE)],
    ApiKey.DELETE_ACLS: [(CLUSTER, ALTER)],
    ApiKey.DELETE_GROUPS: [(GROUP, DELETE)],
    ApiKey.DELETE_RECORDS: [(TOPIC, DELETE)],
    ApiKey.DELETE_TOPICS: [(TOPIC, DELETE)],
    ApiKey.DESCRIBE_ACLS: [(CLUSTER, DESCRIBE)],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [(CLUSTER, DESCRIBE_CONFIGS)],
    ApiKey.DESCRIBE_CONFIGS: [(TOPIC, DESCRIBE_CONFIGS)],
    ApiKey.DESCRIBE_GROUPS: [(GROUP, DESCRIBE)],
    ApiKey.DESCRIBE_LOG_DIRS: [(CLUSTER, DESCRIBE)],
    ApiKey.DESCRIBE_MIRRORS: [(CLUSTER, DESCRIBE)],
    ApiKey.DESCRIBE_PRODUCERS: [(TOPIC, READ)],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [(TOPIC, DESCRIBE)],
    ApiKey.DESCRIBE_TRANSACTIONS: [(TRANSACTIONAL_ID, DESCRIBE)],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [(CLUSTER, DESCRIBE)],
    ApiKey.ELECT_LEADERS: [(CLUSTER, ALTER)],
    ApiKey.END_TXN: [(TRANSACTIONAL_ID, WRITE)],
    ApiKey.FETCH: [(TOPIC, READ)],
    ApiKey.FIND_COORDINATOR: [(GROUP, DESCRIBE)],
    ApiKey.HEARTBEAT: [(GROUP, READ)],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [(TOPIC, ALTER_CONFIGS)],
    ApiKey.INIT_PRODUCER_ID: [(TRANSACTIONAL_ID, WRITE)],
    ApiKey.JOIN_GROUP: [(GROUP, READ)],
    ApiKey.LEAVE_GROUP: [(GROUP, READ)],
    ApiKey.LIST_CONFIG_RESOURCES: [(CLUSTER, DESCRIBE_CONFIGS)],
    ApiKey.LIST_GROUPS: [(GROUP, DESCRIBE)],
    ApiKey.LIST_OFFSETS: [(TOPIC, DESCRIBE)],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [(CLUSTER, DESCRIBE)],
    ApiKey.LIST_TRANSACTIONS: [(TRANSACTIONAL_ID, DESCRIBE)],
    ApiKey.METADATA: [(TOPIC, DESCRIBE)],
    ApiKey.OFFSET_COMMIT: [(GROUP, READ), (TOPIC, READ)],
    ApiKey.OFFSET_DELETE: [(GROUP, DELETE), (TOPIC, READ)],
    ApiKey.OFFSET_FETCH: [(GROUP, DESCRIBE), (TOPIC, DESCRIBE)],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [(TOPIC, DESCRIBE)],
    ApiKey.PRODUCE: [(TOPIC, WRITE)],
    ApiKey.SYNC_GROUP: [(GROUP, READ)],
    ApiKey.TXN_OFFSET_COMMIT: [(TRANSACTIONAL_ID, WRITE), (GROUP, READ), (TOPIC, READ)],
    ApiKey.WRITE_TXN_MARKERS: [(CLUSTER, CLUSTER_ACTION)],
}
"""What Kafka's brokers check for the requests of `EVERY_REQUEST`, and what this broker checks for its own APIs."""


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("acls"), SETTINGS) as running:
        yield running


@pytest.fixture
def admin(thread: BrokerThread) -> Iterator[RawClient]:
    with RawClient(port_of(thread, "PLAINTEXT")) as client:
        yield client


@pytest.fixture
def client(thread: BrokerThread) -> Iterator[RawClient]:
    """A client without rights. Those that a test grants are taken away after it."""
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as connection:
        assert log_in_plainly(connection, "walker", "w").error_code == 0
        yield connection
    forget_rules(thread)


def access_of(thread: BrokerThread) -> AccessControl:
    access = thread.broker.access
    assert access is not None
    return access


def grant(
    thread: BrokerThread,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    pattern: PatternType = LITERAL,
    permission: Permission = Permission.ALLOW,
) -> None:
    acl = Acl(Resource(resource_type, pattern, name), "User:walker", "*", operation, permission)
    thread.run(access_of(thread).add([acl]))


def produce(client: RawClient, topic: str) -> int:
    response = client.ask(produce_request(topic, batch_of(b"v")), 9)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def make_names(admin: RawClient, suffix: str) -> Named:
    """Create a topic with one record, a group with a commit, and a transactional id."""
    named = Named(f"t-{suffix}", f"g-{suffix}", f"x-{suffix}")
    admin.ask(MetadataRequest(topics=[MetadataRequestTopic(name=named.topic)]), 9)
    assert (
        admin.ask(produce_request(named.topic, batch_of(b"v")), 9).responses[0].partition_responses[0].error_code == 0
    )

    def has(request: Any, version: int) -> bool:
        return {*codes(admin.ask(request, version))} == {0}

    for key, value, kind in ((ApiKey.FIND_COORDINATOR, named.group, 0), (ApiKey.FIND_COORDINATOR, named[2], 1)):
        request: Any = EVERY_REQUEST[key].request(named)
        request.coordinator_keys, request.key_type = [value], kind
        until(partial(has, request, 4), "there is a coordinator")
    until(partial(has, EVERY_REQUEST[ApiKey.OFFSET_COMMIT].request(named), 8), "the offset is committed")
    until(partial(has, EVERY_REQUEST[ApiKey.INIT_PRODUCER_ID].request(named), 4), "there is a producer")
    return named


def codes(message: Any) -> Iterator[int]:
    """Return all error codes in a response."""
    if isinstance(message, list):
        for each in message:
            yield from codes(each)
    elif is_dataclass(message):
        for field in fields(message):
            value = getattr(message, field.name)
            if field.name.endswith("error_code") and field.name != "topic_config_error_code":
                yield value
            elif isinstance(value, list):
                yield from codes(value)


def everything(thread: BrokerThread) -> Any:
    """Return the metadata, the end of every log, and the groups."""

    def look(broker: Any) -> Any:
        ends = {each.name: (each.log.log_start_offset, each.log.log_end_offset) for each in broker.replicas.all()}
        return ends, dict(broker.metadata.image.topics)

    return thread.run(thread.broker._store.load("/")), thread.look(look)


def test_every_api_declares_what_it_needs() -> None:
    assert {api.key for api in APIS if not api.needs} == OPEN
    assert {api.key for api in APIS} - OPEN == set(EVERY_REQUEST) == set(KAFKAS_RIGHTS)


def forget_rules(thread: BrokerThread) -> None:
    thread.run(access_of(thread).remove([AclFilter()]))


@pytest.mark.parametrize("key", KAFKAS_RIGHTS, ids=lambda key: key.name)
def test_every_api_needs_exactly_the_rights_that_kafka_asks_for(
    thread: BrokerThread, admin: RawClient, client: RawClient, key: ApiKey
) -> None:
    """Without rights, with every right but one of them, and with them alone."""
    named = make_names(admin, key.name.lower())
    case, rights = EVERY_REQUEST[key], KAFKAS_RIGHTS[key]
    names = {
        TOPIC: named.topic + ("-new" if key is ApiKey.CREATE_TOPICS else ""),
        GROUP: named.group,
        CLUSTER: CLUSTER_NAME,
        TRANSACTIONAL_ID: named.transactional_id,
    }
    if key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
        names[GROUP] = "consumer-" + named.group

    def check_refusal(error: ErrorCode | None) -> None:
        before = everything(thread)
        refused = client.ask(case.request(named), case.version)
        assert everything(thread) == before
        if error is not None:
            assert {error} == {code for code in codes(refused) if code}
        else:
            assert set(codes(refused)) == {0}
            assert all(not getattr(refused, field.name) for field in fields(refused))

    check_refusal(case.error)
    for resource_type, operation in rights:
        for each in rights:
            if each != (resource_type, operation):
                grant(thread, each[1], each[0], names[each[0]])
        for other in OPERATIONS[resource_type] - SUFFICIENT.get(operation, {operation}):
            if (key, other) != (ApiKey.WRITE_TXN_MARKERS, AclOperation.ALTER):  # an administrator may end a transaction
                grant(thread, other, resource_type, names[resource_type])
        check_refusal(None if case.error is None else ERRORS[resource_type])
        forget_rules(thread)
    for resource_type, operation in rights:
        grant(thread, operation, resource_type, names[resource_type])
    answered = client.ask(case.request(named), case.version)
    assert not DENIALS & {*codes(answered)}
    if case.error is None:
        assert named.group in str(answered) or named.transactional_id in str(answered)


@pytest.mark.parametrize(
    "key",
    [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE, ApiKey.TXN_OFFSET_COMMIT],
    ids=lambda key: key.name,
)
def test_offsets_need_a_right_to_the_topic_too(
    thread: BrokerThread, admin: RawClient, client: RawClient, key: ApiKey
) -> None:
    named = make_names(admin, "offsets-" + key.name.lower())
    grant(thread, AclOperation.ALL, GROUP, named.group)
    grant(thread, AclOperation.ALL, ResourceType.TRANSACTIONAL_ID, named.transactional_id)
    before = everything(thread)
    case = EVERY_REQUEST[key]
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in {*codes(client.ask(case.request(named), case.version))}
    assert everything(thread) == before


def test_errors_do_not_reveal_whether_a_topic_exists(admin: RawClient, client: RawClient) -> None:
    named = make_names(admin, "revealed")
    for key, case in EVERY_REQUEST.items():
        if case.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED and key is not ApiKey.CREATE_TOPICS:
            unknown = named._replace(topic="t-unknown1")
            there, absent = (client.ask(case.request(each), case.version) for each in (named, unknown))
            assert [*codes(there)] == [*codes(absent)], key.name
            assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in {*codes(there)}, key.name


def test_listings_leave_out_what_may_not_be_described(
    thread: BrokerThread, admin: RawClient, client: RawClient
) -> None:
    seen, hidden = make_names(admin, "seen"), make_names(admin, "hidden")
    for request, version in (
        (MetadataRequest(topics=None), 9),
        (DescribeTopicPartitionsRequest(topics=[]), 0),
        (ListGroupsRequest(), 4),
        (ListTransactionsRequest(), 0),
    ):
        assert "-seen" not in str(client.ask(request, version))
    grant(thread, AclOperation.READ, TOPIC, "t-see", PREFIXED)
    grant(thread, AclOperation.DESCRIBE, GROUP, seen.group)
    grant(thread, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, seen.transactional_id)
    assert [row.name for row in client.ask(MetadataRequest(topics=None), 9).topics] == [seen.topic]
    pages = client.ask(DescribeTopicPartitionsRequest(topics=[]), 0)
    assert [row.name for row in pages.topics] == [seen.topic]
    assert [row.group_id for row in client.ask(ListGroupsRequest(), 4).groups] == [seen.group]
    listed = client.ask(ListTransactionsRequest(), 0).transaction_states
    assert [row.transactional_id for row in listed] == [seen.transactional_id]
    grant(thread, AclOperation.DESCRIBE, GROUP, hidden.group)
    for named, expected in ((seen, [seen.topic]), (hidden, [])):
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=named.group, topics=None)])
        assert [row.name for row in client.ask(asked, 8).groups[0].topics] == expected


def test_a_regular_expression_selects_the_topics_that_the_member_may_describe(
    thread: BrokerThread, admin: RawClient, client: RawClient
) -> None:
    for name in ("matched-open", "matched-secret"):
        create_topic(admin, name)
    ids = {topic.topic_id: name for name, topic in thread.look(lambda broker: broker.metadata.image.topics).items()}
    admin.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    grant(thread, AclOperation.READ, GROUP, "g")
    grant(thread, AclOperation.DESCRIBE, TOPIC, "matched-open")
    epoch = 0

    def assigned() -> list[str] | None:
        """Send a heartbeat. Return the topics of the assignment if the response has one."""
        nonlocal epoch
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            subscribed_topic_regex="matched-.*",
            rebalance_timeout_ms=1000,
            topic_partitions=[],
        )
        response = client.ask(request, 1)
        assert response.error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), response.error_message
        epoch = response.member_epoch
        found = response.assignment
        return None if found is None else sorted(ids[each.topic_id] for each in found.topic_partitions)

    assert until(assigned, "the assignment") == ["matched-open"]
    grant(thread, AclOperation.DESCRIBE, TOPIC, "matched-secret")
    assert assigned() == ["matched-open", "matched-secret"]


def test_a_consumer_group_is_described_only_with_a_right_to_its_topics(
    thread: BrokerThread, admin: RawClient, client: RawClient
) -> None:
    named = make_names(admin, "described")
    joined = EVERY_REQUEST[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    until(lambda: admin.ask(joined.request(named), joined.version).error_code == 0, "the member has joined")
    group = "consumer-" + named.group
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    grant(thread, AclOperation.DESCRIBE, GROUP, group)
    (found,) = client.ask(request, 1).groups
    assert (found.error_code, found.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    grant(thread, AclOperation.DESCRIBE, TOPIC, named.topic)
    (found,) = client.ask(request, 1).groups
    assert [member.subscribed_topic_names for member in found.members] == [[named.topic]]


def test_operations_are_those_that_the_client_has(thread: BrokerThread, admin: RawClient, client: RawClient) -> None:
    named = make_names(admin, "operations")
    assert client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1).brokers
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert client.ask(cluster, 1).cluster_authorized_operations == 0
    grant(thread, AclOperation.ALTER, CLUSTER, CLUSTER_NAME)
    expected = 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE
    assert client.ask(cluster, 1).cluster_authorized_operations == expected
    topic = MetadataRequest(topics=[MetadataRequestTopic(name=named.topic)], include_topic_authorized_operations=True)
    assert client.ask(topic, 9).topics[0].topic_authorized_operations == 0
    grant(thread, AclOperation.READ, TOPIC, named.topic)
    expected = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert client.ask(topic, 9).topics[0].topic_authorized_operations == expected


def test_topics_by_id_are_refused_without_their_name(admin: RawClient, client: RawClient) -> None:
    named = make_names(admin, "by-id")
    topic_id = admin.topic(named.topic).topic_id
    (row,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)]), 12).topics
    assert (row.error_code, row.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1000)
    (result,) = client.ask(deletion, 6).responses
    assert (result.error_code, result.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    fetched = client.ask(fetch_request(topic_id, 0), 13)
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not fetched.responses[0].partitions[0].records


def test_a_new_topic_needs_the_right_to_create_it(thread: BrokerThread, client: RawClient) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="made")])
    grant(thread, AclOperation.WRITE, TOPIC, "made")
    assert client.ask(request, 9).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    grant(thread, AclOperation.CREATE, TOPIC, "made")
    assert client.ask(request, 9).topics[0].error_code == 0


def test_followers_need_a_right_to_the_cluster(admin: RawClient, client: RawClient) -> None:
    named = make_names(admin, "follower")
    request = fetch_request(admin.topic(named.topic).topic_id, 0)
    request.replica_state = ReplicaState(replica_id=1)
    assert client.ask(request, 15).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_idempotent_producer_must_be_allowed_to_write_something(thread: BrokerThread, client: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    assert client.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    grant(thread, AclOperation.WRITE, TOPIC, "any", PREFIXED)
    assert client.ask(request, 4).error_code == 0


def test_decisions_are_remembered_until_a_rule_changes(
    thread: BrokerThread, admin: RawClient, client: RawClient
) -> None:
    """A producer in a fast lane, and a consumer that waits, lose their rights at once."""
    named = make_names(admin, "lanes")

    grant(thread, AclOperation.WRITE, TOPIC, named.topic)
    assert [produce(client, named.topic) for _ in range(3)] == [0, 0, 0]
    sessions = thread.look(lambda broker: [each.handler for each in broker.listener.connections])
    assert any(isinstance(each, Session) and each.lanes is not None and each.lanes._lanes for each in sessions)
    grant(thread, AclOperation.WRITE, TOPIC, named.topic, permission=Permission.DENY)
    end = admin.end_offset(named.topic)
    assert produce(client, named.topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert admin.end_offset(named.topic) == end
    grant(thread, AclOperation.READ, TOPIC, named.topic)
    client.send(fetch_request(named.topic, end, max_wait_ms=20_000), 12)
    assert not client.has_answer(0.1)
    grant(thread, AclOperation.READ, TOPIC, named.topic, permission=Permission.DENY)
    assert (
        admin.ask(produce_request(named.topic, batch_of(b"secret")), 9).responses[0].partition_responses[0].error_code
        == 0
    )
    (row,) = client.receive().responses[0].partitions
    assert (row.error_code, bool(row.records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)


def test_records_of_a_transaction_need_a_right_to_its_id(
    thread: BrokerThread, admin: RawClient, client: RawClient
) -> None:
    """Also without an id, and in a fast lane: otherwise a writer could join the open transaction of another."""
    named = make_names(admin, "transaction")
    started = admin.ask(EVERY_REQUEST[ApiKey.INIT_PRODUCER_ID].request(named), 4)
    assert started.error_code == 0
    added: Any = EVERY_REQUEST[ApiKey.ADD_PARTITIONS_TO_TXN].request(named)
    added.v3_and_below_producer_id = started.producer_id
    added.v3_and_below_producer_epoch = started.producer_epoch
    until(lambda: set(codes(admin.ask(added, 3))) == {0}, "the transaction has begun")

    def produce_in_transaction(by: RawClient, sequence: int, transactional_id: str | None) -> int:
        batch = batch_of(
            b"v",
            producer_id=started.producer_id,
            producer_epoch=started.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(named.topic, batch)
        request.transactional_id = transactional_id
        code: int = by.ask(request, 9).responses[0].partition_responses[0].error_code
        return code

    assert produce_in_transaction(admin, 0, named.transactional_id) == 0
    grant(thread, AclOperation.WRITE, TOPIC, named.topic)
    assert [produce(client, named.topic) for _ in range(2)] == [0, 0]  # opens a lane
    end = admin.end_offset(named.topic)
    for transactional_id in (None, named.transactional_id):
        code = produce_in_transaction(client, 1, transactional_id)
        assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert admin.end_offset(named.topic) == end
    grant(thread, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, named.transactional_id)
    assert produce_in_transaction(client, 1, named.transactional_id) == 0


def test_brokers_need_a_right_to_the_cluster_to_verify_transactions(
    thread: BrokerThread, admin: RawClient, client: RawClient
) -> None:
    named = make_names(admin, "verified")
    row = AddPartitionsToTxnTransaction(
        transactional_id=named.transactional_id,
        producer_id=0,
        producer_epoch=0,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=named.topic, partitions=[0])],
    )
    request = AddPartitionsToTxnRequest(transactions=[row])
    assert client.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    grant(thread, AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    assert not DENIALS & {*codes(client.ask(request, 4))}


def test_settings_of_brokers_and_new_topics_may_be_rights_to_the_cluster(
    thread: BrokerThread, client: RawClient
) -> None:
    describe = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="")])
    create: Any = EVERY_REQUEST[ApiKey.CREATE_TOPICS].request(Named("by-cluster", "", ""))
    for request, version, operation in (
        (describe, 4, AclOperation.DESCRIBE_CONFIGS),
        (create, 7, AclOperation.CREATE),
    ):
        assert DENIALS & {*codes(client.ask(request, version))}
        grant(thread, operation, CLUSTER, CLUSTER_NAME)
        assert not DENIALS & {*codes(client.ask(request, version))}
    assert client.ask(create, 7).topics[0].configs in (None, [])  # they need DESCRIBE_CONFIGS on the topic


def test_a_large_request_is_checked_like_a_small_one(client: RawClient) -> None:
    creation = AclCreation(
        resource_type=2, resource_name="t" * 200, principal="User:walker", host="*", operation=2, permission_type=3
    )
    results = client.ask(CreateAclsRequest(creations=[creation] * 1000), 3).results
    assert {row.error_code for row in results} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_rules_outlive_the_broker(tmp_path: Path) -> None:
    acl = Acl(Resource(TOPIC, PREFIXED, "a/b:c é"), "User:CN=x,O=y", "10.0.0.1", AclOperation.ALL, Permission.DENY)
    with BrokerThread(tmp_path, SETTINGS) as running:
        running.run(access_of(running).add([acl, acl]))
    with BrokerThread(tmp_path, SETTINGS) as running, RawClient(port_of(running, "PLAINTEXT")) as admin:
        assert running.look(lambda _: access_of(running).authorizer.acls()) == [acl]
        found = admin.ask(EVERY_REQUEST[ApiKey.DESCRIBE_ACLS].request(Named("", "", "")), 3)
        assert [(row.resource_name, row.pattern_type, len(row.acls)) for row in found.resources] == [("a/b:c é", 4, 1)]
        wrong: Any = DescribeAclsRequest(
            resource_type_filter=99,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        assert admin.ask(wrong, 3).error_code == ErrorCode.INVALID_REQUEST


def test_librdkafka_reads_and_writes_with_prefixed_rights(thread: BrokerThread) -> None:
    bootstrap = f"127.0.0.1:{port_of(thread, 'SASL_PLAINTEXT')}"
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "bootstrap.servers": bootstrap}
    writer_login = login | {"sasl.username": "walker", "sasl.password": "w"}
    reader_login = login | {"sasl.username": "reader", "sasl.password": "r"}
    root = AdminClient({"bootstrap.servers": f"127.0.0.1:{port_of(thread, 'PLAINTEXT')}"})
    rules = [
        ("web-", NativeType.TOPIC, "walker", NativeOperation.WRITE),
        ("web-", NativeType.TOPIC, "walker", NativeOperation.CREATE),
        ("web-", NativeType.TOPIC, "reader", NativeOperation.READ),
        ("report-", NativeType.GROUP, "reader", NativeOperation.READ),
    ]
    bindings = [
        AclBinding(kind, name, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for name, kind, user, operation in rules
    ]
    for future in root.create_acls(bindings).values():
        future.result(30)
    try:
        assert send(writer_login, "web-clicks", is_idempotent=True) is None
        assert send(writer_login, "other") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert send(reader_login, "web-clicks") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert receive(reader_login, "web-clicks", "report-1") == b"v"
        assert receive(reader_login, "web-clicks", "other") == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert receive(writer_login, "web-clicks", "report-1") == ErrorCode.GROUP_AUTHORIZATION_FAILED
        make_filter: Any = AclBindingFilter  # its types do not know None
        anything = make_filter(
            NativeType.ANY, None, ResourcePatternType.ANY, None, None, NativeOperation.ANY, AclPermissionType.ANY
        )
        described: Any = root.describe_acls(anything)
        assert len(described.result(30)) == len(rules)
        (removed,) = root.delete_acls([anything]).values()
        assert len(removed.result(30)) == len(rules)
        assert send(writer_login, "web-clicks") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    finally:
        thread.run(access_of(thread).remove([AclFilter()]))


def send(login: dict[str, str], topic: str, *, is_idempotent: bool = False) -> int | None:
    """Send a message. Return the error, or None if it was stored."""
    errors: list[Any] = []
    settings: dict[str, Any] = {**login, "enable.idempotence": is_idempotent}
    producer = Producer(settings, logger=logging.getLogger("librdkafka"))
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    return errors[0].code() if errors[0] is not None else None


def receive(login: dict[str, str], topic: str, group: str) -> bytes | int:
    """Return the first message of a topic, or the error."""
    settings = login | {"group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings, logger=logging.getLogger("librdkafka"))
    try:
        consumer.subscribe([topic])
        found: list[Any] = []

        def poll() -> bool:
            message = consumer.poll(0.1)
            if message is not None:
                found.append(message)
            return bool(found)

        until(poll, "a message or an error arrives")
        error = found[0].error()
        value: bytes | int = found[0].value() if error is None else error.code()
        return value
    finally:
        consumer.close()


def test_decisions_are_logged_on_request(
    thread: BrokerThread, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[tuple[str, str]]:
        return [
            (each.levelname, each.getMessage()) for each in caplog.records if each.name == "kafka.authorizer.logger"
        ]

    grant(thread, AclOperation.WRITE, TOPIC, "audited")
    assert produce(client, "quiet") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert lines() == []  # nobody has asked for it
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        produce(client, "audited")
        produce(client, "secret")
        (denied,) = lines()
    assert denied == (
        "INFO",
        "User:walker from 127.0.0.1: WRITE on TOPIC 'secret': denied, by there is no rule for this resource",
    )
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
        client.ask(MetadataRequest(topics=None), 9)
        client.ask(ListGroupsRequest(), 4)
        assert lines() == [denied]  # lists leave out what nobody has asked for
        client.ask(EVERY_REQUEST[ApiKey.DESCRIBE_ACLS].request(Named("", "", "")), 3)
        client.ask(EVERY_REQUEST[ApiKey.DESCRIBE_ACLS].request(Named("", "", "")), 3)
        assert [line for _, line in lines()[1:]] == [  # though it was hidden before
            "User:walker from 127.0.0.1: DESCRIBE on CLUSTER 'kafka-cluster': denied, by there is no rule for this "
            "resource"
        ]
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        grant(thread, AclOperation.WRITE, TOPIC, "other")  # what a session remembers ends with a change of the rules
        produce(client, "audited")
    allowed = [line for level, line in lines() if level == "DEBUG" and "WRITE" in line]
    assert allowed == [
        "User:walker from 127.0.0.1: WRITE on TOPIC 'audited': allowed, by allow User:walker write on topic audited"
    ]
