"""DescribeTopicPartitions: topics by name, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

from .conftest import create_topic
from .process import BrokerProcess
from .raw import RawClient

TOPICS = {"a": 1, "b": 3, "c": 2}
EVERYTHING = [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]
ALL_TOPIC_OPERATIONS = 0b1101_1111_1000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    data_dir: Path = tmp_path_factory.mktemp("pages") / "data"
    with BrokerProcess(data_dir) as broker, RawClient(broker.port) as client:
        for name, partitions in reversed(TOPICS.items()):
            create_topic(client, name, partitions)
        yield client


def page(
    client: RawClient, names: str = "", limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    response: DescribeTopicPartitionsResponse = client.ask(request, 0)
    return response


def partitions(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, row.partition_index) for topic in response.topics for row in topic.partitions]


def test_no_topics_means_all_in_the_order_of_their_names(filled: RawClient) -> None:
    response = page(filled)
    assert partitions(response) == EVERYTHING
    assert response.next_cursor is None


def test_a_row_has_all_that_metadata_has_and_empty_lists_of_eligible_leaders(filled: RawClient) -> None:
    (found,) = page(filled, "b").topics
    topic = filled.topic("b")
    assert (found.error_code, found.topic_id, found.is_internal) == (0, topic.topic_id, False)
    assert found.topic_authorized_operations == ALL_TOPIC_OPERATIONS
    for row in found.partitions:
        assert (row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes) == (1, 0, [1], [1])
        assert (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas) == ([], [], [])


def test_named_topics_come_sorted_and_once(filled: RawClient) -> None:
    assert [topic.name for topic in page(filled, "cacac").topics] == ["a", "c"]


@pytest.mark.parametrize("names", ["", "abc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_pages_put_together_are_everything(filled: RawClient, names: str, limit: int) -> None:
    found: list[tuple[str | None, int]] = []
    cursor: Cursor | None = None
    while True:
        response = page(filled, names, limit, cursor)
        assert 1 <= len(partitions(response)) <= limit
        found += partitions(response)
        cursor = response.next_cursor
        if cursor is None:
            break
    assert found == EVERYTHING


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_a_page_has_at_least_one_partition(filled: RawClient, limit: int) -> None:
    response = page(filled, limit=limit)
    assert partitions(response) == [("a", 0)]
    assert response.next_cursor == Cursor(topic_name="b", partition_index=0)


def test_a_cursor_may_be_at_a_deleted_topic(filled: RawClient) -> None:
    response = page(filled, cursor=Cursor(topic_name="aa", partition_index=7))
    assert partitions(response) == EVERYTHING[1:]


def test_a_cursor_beyond_the_partitions_of_its_topic_leaves_an_empty_row(filled: RawClient) -> None:
    response = page(filled, "b", cursor=Cursor(topic_name="b", partition_index=9))
    assert [(topic.name, topic.partitions) for topic in response.topics] == [("b", [])]
    assert response.next_cursor is None


@pytest.mark.parametrize(
    "cursor",
    [
        Cursor(topic_name="b", partition_index=0),
        Cursor(topic_name="a", partition_index=-1),
    ],
)
def test_a_cursor_outside_of_the_request_is_refused(filled: RawClient, cursor: Cursor) -> None:
    response = page(filled, "aca", cursor=cursor)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]


def test_unknown_and_invalid_names_get_different_errors(filled: RawClient) -> None:
    assert [(topic.name, topic.error_code) for topic in page(filled, "z*b").topics] == [
        ("*", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", ErrorCode.NONE),
        ("z", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
