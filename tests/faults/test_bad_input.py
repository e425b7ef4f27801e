"""Every byte string is a possible request: the broker answers with an error or closes that one connection."""

from __future__ import annotations

import contextlib
import random
import re
import struct
import time
from typing import Any

import pytest

from skylog.errors import ErrorCode
from skylog.protocol import alter_configs as whole
from skylog.protocol import incremental_alter_configs as incremental
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skylog.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.apis import ApiKey
from skylog.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skylog.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from skylog.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from skylog.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.proof import proof
from tests.seeds import seed

from ..broker.process import BrokerProcess
from ..broker.raw import ClosedByBrokerError, RawClient, batch_of, produce_request
from .valid_requests import NEWEST, OLDEST, SERVED, valid_frame, valid_request

pytestmark = pytest.mark.usefixtures("undisturbed")

FUZZ_SECONDS = 5.0
GREAT_NUMBER = 1000
OWN_FILE = re.compile(r"(lock|meta\.properties|metadata\.json|[a-z-]+-checkpoint)(\.tmp)?")


def header(key: int, version: int, client_id: bytes = b"\0\x03raw") -> bytes:
    return struct.pack(">hhi", key, version, 1) + client_id


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1, 0x47455420])
def test_a_frame_of_impossible_length_closes_the_connection(broker: BrokerProcess, length: int) -> None:
    with RawClient(broker.port) as bad:
        bad.send_bytes(struct.pack(">i", length) + b"/ HTTP/1.1\r\n\r\n")
        assert bad.is_closed()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"\0\x12\0\0\0\0\0",
        header(18, 0, b"\0"),
        header(18, 0, b"\x7f\xff"),
        header(18, 0, b"\xff\xfe"),
        header(18, 3) + b"\xff\xff\xff\xff\xff",
        header(18, 3) + b"\x01\x00\xff\xff\xff\xff\x0f",
    ],
)
def test_a_header_that_cannot_be_read_closes_the_connection(broker: BrokerProcess, body: bytes) -> None:
    with RawClient(broker.port) as bad:
        bad.send_bytes(framed(body))
        assert bad.is_closed()


@pytest.mark.parametrize(
    ("key", "version"),
    [(-1, 0), (999, 0), (32767, 32767), (4, 0), (7, 0), (27, 2), (0, 2), (0, 12), (1, 3), (1, 18), (3, 13), (3, -1)],
)
def test_an_unknown_api_or_version_closes_the_connection(broker: BrokerProcess, key: int, version: int) -> None:
    with RawClient(broker.port) as bad:
        bad.send_bytes(framed(header(key, version) + bytes(100)))
        assert bad.is_closed()


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xfe", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"\0\xff\xff\xff"])
def test_negative_and_huge_counts_close_the_connection_and_cost_no_memory(broker: BrokerProcess, count: bytes) -> None:
    """In plain versions of several APIs, and as compact lengths in flexible ones."""
    broker.reset_peak()
    before = broker.rss_bytes
    plain = [
        header(3, 1) + count,
        header(2, 1) + b"\xff\xff\xff\xff" + count,
        header(0, 3) + b"\xff\xff\xff\xff\0\0\0\0" + count,
        header(0, 3) + b"\xff\xff\xff\xff\0\0\0\0\0\0\0\x01\0\x01t" + count,
        header(1, 4) + bytes(17) + count,
        header(19, 2) + count,
        header(20, 1) + count,
        header(32, 1) + count,
    ]
    huge = b"\xff\xff\xff\xff\x0f"
    flexible = [
        header(3, 9) + b"\0" + huge,
        header(0, 9) + b"\0\0" + b"\xff\xff\0\0\0\0" + huge,
        header(19, 5) + b"\0" + huge,
    ]
    for body in [*plain, *flexible]:
        with RawClient(broker.port) as bad:
            bad.send_bytes(framed(body + bytes(50)))
            assert bad.is_closed(), body
    assert broker.peak_rss_bytes - before < 20 * 1024 * 1024


CUTS = proof(1, usual=3)
"""Every third byte of a request; with `make proof` every byte."""


@pytest.mark.parametrize(("key", "version"), sorted({*NEWEST, *OLDEST}))
def test_a_request_cut_at_any_byte_hurts_nobody(broker: BrokerProcess, key: ApiKey, version: int) -> None:
    """Cut and closed; cut with a length that fits, so that the broker has to make sense of it; cut and silent."""
    frame = valid_frame(key, version)
    silent = []
    for cut in range(1 + key % CUTS, len(frame), CUTS):
        with RawClient(broker.port) as leaving:
            leaving.send_bytes(frame[:cut])
        if cut > 4:
            with RawClient(broker.port) as bad:
                bad.send_bytes(framed(frame[4:cut]) + framed(header(18, 0)))
                with contextlib.suppress(ClosedByBrokerError):  # or an answer to what is left, and to the next request
                    assert bad.read_frame()
                    assert bad.read_frame()
        if cut % 16 == 1:
            waiting = RawClient(broker.port)
            waiting.send_bytes(frame[:cut])
            silent.append(waiting)
    for waiting in silent:
        waiting.close()
    with RawClient(broker.port) as good:
        assert good.ask(ApiVersionsRequest(), 0).error_code == 0


BAD_NAMES = [
    "../x",
    "..",
    ".",
    "",
    "/etc/x",
    "a/../../b",
    "a\0b",
    "a\nb",
    "x" * 250,
    "x" * 30_000,
    "\ud7ff",
    "*",
    "a b",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_an_invalid_topic_name_makes_no_file_through_any_api(
    broker: BrokerProcess, client: RawClient, name: str
) -> None:
    outside = set(broker.data_dir.parent.iterdir())
    row = DeleteRecordsPartition(partition_index=0, offset=0)
    incremental_row = incremental.AlterableConfig(name="retention.ms", config_operation=0, value="1")
    requests: list[Any] = [
        (MetadataRequest(topics=[MetadataRequestTopic(name=name)]), range(13)),
        (CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]), range(2, 8)),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=1), range(1, 7)),
        (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=2)], timeout_ms=1), range(4)),
        (DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[row])], timeout_ms=1), range(3)),
        (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=name)]), range(5)),
        (DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=[0])]), range(5)),
        (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)]), range(1)),
        (DescribeProducersRequest(topics=[DescribeProducersTopic(name=name, partition_indexes=[0])]), range(1)),
        (ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic=name, partitions=[0])]), range(3)),
        (
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0)])]
            ),
            range(1),
        ),
        (
            AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=str(broker.data_dir), topics=[AlterReplicaLogDirTopic(name=name, partitions=[0])]
                    )
                ]
            ),
            range(1, 3),
        ),
        (
            whole.AlterConfigsRequest(
                resources=[whole.AlterConfigsResource(resource_type=2, resource_name=name, configs=[])]
            ),
            range(3),
        ),
        (
            incremental.IncrementalAlterConfigsRequest(
                resources=[
                    incremental.AlterConfigsResource(resource_type=2, resource_name=name, configs=[incremental_row])
                ]
            ),
            range(2),
        ),
        (
            OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
                ]
            ),
            range(2, 5),
        ),
    ]
    for request, versions in requests:
        for version in versions:
            assert error_codes(client.ask(request, version)) - {0} or isinstance(request, DescribeLogDirsRequest)
    assert client.produce(name, batch_of(b"x")).error_code != 0
    assert client.fetch(name, 0).error_code != 0
    assert client.list_offset(name, -1).error_code != 0
    topics = {topic.name for topic in client.metadata().topics}
    assert name not in topics
    assert set(broker.data_dir.parent.iterdir()) == outside
    for path in broker.data_dir.iterdir():
        if path.is_dir():
            topic, _, partition = path.name.rpartition("-")
            assert topic in topics
            assert partition.isdecimal()
        else:
            assert OWN_FILE.fullmatch(path.name), path


def error_codes(message: Any) -> set[int]:
    """Every error code in a response, however deep."""
    codes = set()
    for field in getattr(type(message), "__dataclass_fields__", {}):
        value = getattr(message, field)
        if field == "error_code":
            codes.add(value)
        for item in value if isinstance(value, list) else []:
            codes |= error_codes(item)
    return codes


def test_an_oversize_message_is_refused_and_the_connection_goes_on(broker: BrokerProcess, client: RawClient) -> None:
    client.metadata("oversize", create=True)
    broker.reset_peak()
    before = broker.rss_bytes
    answer = client.produce("oversize", batch_of(bytes(60 * 1024 * 1024)))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert broker.peak_rss_bytes - before < 100 * 1024 * 1024
    assert client.produce("oversize", batch_of(b"small")).base_offset == 0


def test_mutated_requests_of_every_api_hurt_nobody(broker: BrokerProcess) -> None:
    """Bytes changed, cut out, doubled and swapped in valid frames, for a bounded time."""
    rng = random.Random(seed())
    frames = [valid_frame(key, version) for key, version in SERVED]
    deadline = time.monotonic() + FUZZ_SECONDS
    sent = 0
    with RawClient(broker.port) as setup:
        setup.metadata("name", create=True)
    while time.monotonic() < deadline:
        with RawClient(broker.port) as bad:
            for _ in range(20):
                body = bytearray(rng.choice(frames)[4:])
                for _ in range(rng.randint(1, 4)):
                    mutate(body, rng)
                if len(body) >= 4 and body[1] in (19, 37) and body[0] == 0:
                    continue  # it would really make as many partitions as the number says
                try:
                    bad.send_bytes(framed(bytes(body)))
                except ClosedByBrokerError:
                    break
                sent += 1
    assert sent > 500


def test_names_and_rows_in_great_number_hurt_nobody(broker: BrokerProcess) -> None:
    """Every list of a valid request a thousand times as long, one list after the other."""
    with RawClient(broker.port) as setup:
        setup.metadata("name", create=True)
    for key, version in NEWEST:
        if key in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS):
            continue  # they would really make and delete topics
        for number in range(len(lists_in(valid_request(key, version)))):
            request = valid_request(key, version)
            found = lists_in(request)[number]
            found *= GREAT_NUMBER
            with RawClient(broker.port) as bad:
                bad.send_bytes(bad.encode(request, version))
                with contextlib.suppress(ClosedByBrokerError):
                    assert bad.read_frame()


def lists_in(message: Any) -> list[list[Any]]:
    """Every list in a message that is not empty, however deep in the first element of others."""
    found = []
    for field in getattr(type(message), "__dataclass_fields__", {}):
        value = getattr(message, field)
        if isinstance(value, list) and value:
            found += [value, *lists_in(value[0])]
    return found


def mutate(body: bytearray, rng: random.Random) -> None:
    if not body:
        return
    at = rng.randrange(len(body))
    match rng.randrange(6):
        case 0:
            body[at] = rng.randrange(256)
        case 1:
            body[at] ^= 1 << rng.randrange(8)
        case 2:
            del body[at : at + rng.randint(1, 8)]
        case 3:
            body[at:at] = rng.randbytes(rng.randint(1, 8))
        case 4:
            body[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"])
        case 5:
            body[at : at + 8] = rng.choice([b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7)])


def test_a_valid_request_with_bytes_behind_its_body_is_answered(client: RawClient) -> None:
    """Kafka lets them pass."""
    frame = client.encode(ApiVersionsRequest(), 0)
    client.send_bytes(framed(frame[4:] + b"and more"))
    assert client.receive().error_code == 0


def test_a_long_client_id_on_every_request_costs_no_memory(broker: BrokerProcess, client: RawClient) -> None:
    """What is remembered of a producer's requests must not grow with what it calls itself."""
    client.metadata("ids", create=True)
    before = broker.rss_bytes
    for number in range(3000):
        name = f"{number:04d}" + "x" * 32_000
        client.send_bytes(client.encode(produce_request("ids", batch_of(b"x")), 9, client_id=name))
        assert client.receive().responses[0].partition_responses[0].error_code == 0
    assert broker.rss_bytes - before < 30 * 1024 * 1024
