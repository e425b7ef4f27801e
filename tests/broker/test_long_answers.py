"""Building a response with many rows yields to other requests."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from skylog.broker.handlers.metadata import MAX_CREATED
from skylog.cluster import TopicImage
from skylog.cluster.image import PartitionImage
from skylog.errors import ErrorCode
from skylog.protocol.delete_groups import DeleteGroupsRequest
from skylog.protocol.describe_groups import DescribeGroupsRequest
from skylog.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from skylog.protocol.describe_transactions import DescribeTransactionsRequest
from skylog.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from skylog.protocol.schema import Message

from .process import BrokerThread
from .raw import RawClient

HOLD_SECONDS = 0.1
COUNT = 50_000
NAMES = [f"unknown-{number}" for number in range(COUNT)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    gc.collect()
    gc.freeze()  # objects that other tests have left in this process would count as the broker's work
    with BrokerThread(tmp_path_factory.mktemp("turns") / "data") as broker:
        yield broker
    gc.unfreeze()


@pytest.fixture
def client(here: BrokerThread) -> Iterator[RawClient]:
    with RawClient(here.port) as connection:
        yield connection


class Watch:
    """Runs whenever the loop yields, and records the longest time between two runs."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0

    async def run(self) -> None:
        last = time.thread_time()  # of the loop's thread: a busy machine does not count
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_seconds = max(self.longest_seconds, now - last)
            last = now


def ask_watched(here: BrokerThread, client: RawClient, request: Message, version: int) -> tuple[Any, float]:
    """The response, and how long the loop was held at most."""
    frame = client.encode(request, version)
    watch = Watch()

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(watch.run())

    async def end(task: asyncio.Task[None]) -> None:
        task.cancel()

    task = here.run(begin())
    client.send_bytes(frame)
    response = client.receive()
    here.run(end(task))
    return response, watch.longest_seconds


LONG: dict[str, tuple[Message, int]] = {
    "Metadata": (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in NAMES[: COUNT // 2]], allow_auto_topic_creation=False
        ),
        12,
    ),
    "FindCoordinator": (FindCoordinatorRequest(coordinator_keys=NAMES), 5),
    "DescribeGroups": (DescribeGroupsRequest(groups=NAMES), 5),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=NAMES), 2),
    "LeaveGroup": (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in NAMES]), 5),
    "DescribeTransactions": (DescribeTransactionsRequest(transactional_ids=NAMES), 0),
    "ElectLeaders": (
        ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic="t", partitions=list(range(COUNT)))]),
        2,
    ),
    "DescribeProducers": (
        DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=list(range(COUNT)))]),
        0,
    ),
}


@pytest.mark.parametrize("api", LONG)
def test_many_distinct_names_do_not_hold_the_loop(here: BrokerThread, client: RawClient, api: str) -> None:
    request, version = LONG[api]
    _, longest_seconds = ask_watched(here, client, request, version)
    assert longest_seconds < HOLD_SECONDS


def test_the_metadata_of_many_topics_does_not_hold_the_loop(here: BrokerThread, client: RawClient) -> None:
    """10,000 topics of ten partitions, which are put into the image alone: their logs would take minutes to open."""
    metadata = here.broker.metadata
    before = metadata.image
    partitions = tuple(PartitionImage(1, 0, (1,), (1,)) for _ in range(10))
    names = [f"topic-{number:05d}" for number in range(10_000)]
    metadata.image = before.with_topics({name: TopicImage(name, uuid4(), partitions, {}, 1) for name in names})
    try:
        for _ in range(2):  # encoded the first time, known the second
            response, longest_seconds = ask_watched(here, client, MetadataRequest(topics=None), 12)
            assert [topic.name for topic in response.topics] == names
            assert all(len(topic.partitions) == 10 for topic in response.topics)
            assert longest_seconds < HOLD_SECONDS
    finally:
        metadata.image = before


def test_one_request_creates_a_bounded_number_of_topics_and_the_next_ones_go_on(tmp_path: Path) -> None:
    wanted = [MetadataRequestTopic(name=f"t{number}") for number in range(MAX_CREATED + 20)]
    with BrokerThread(tmp_path / "data") as broker, RawClient(broker.port) as client:
        first = client.ask(MetadataRequest(topics=wanted), 12)
        codes = [topic.error_code for topic in first.topics]
        assert codes == [ErrorCode.NONE] * MAX_CREATED + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 20
        second = client.ask(MetadataRequest(topics=wanted), 12)
        assert {topic.error_code for topic in second.topics} == {ErrorCode.NONE}
