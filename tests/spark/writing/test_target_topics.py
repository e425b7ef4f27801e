"""Topics that the sink creates: how many partitions they get, and when they are not created."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from skylog.client import Admin
from skylog.errors import KafkaError
from skylog.spark.leaders import Leaders
from skylog.spark.topics import DEFAULT_PARTITIONS
from skylog.spark.writing.target_topics import TargetTopics
from skylog.spark.writing.write_options import write_options
from skylog.testing import BrokerProcess


@pytest.fixture
def topic() -> str:
    return f"created-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def three_by_default() -> Iterator[BrokerProcess]:
    with BrokerProcess(settings={"num.partitions": "3"}) as found:
        yield found


@pytest.fixture(scope="module")
def closed() -> Iterator[BrokerProcess]:
    """A broker that does not create topics by itself."""
    with BrokerProcess(settings={"auto.create.topics.enable": "false"}) as found:
        yield found


def partition_count(broker: BrokerProcess, topic: str, **options: str) -> int:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.max.block.ms": "2000", **options}
    with Leaders(broker.bootstrap, 10) as leaders:
        return TargetTopics(leaders, write_options(given)).partition_count(topic)


def test_a_topic_that_exists_is_used_as_it_is(skylog_broker: BrokerProcess, skylog_admin: Admin, topic: str) -> None:
    skylog_admin.create_topic(topic, 2)
    assert partition_count(skylog_broker, topic, topicPartitions="9") == 2


def test_a_new_topic_has_several_partitions_where_the_broker_says_nothing(
    skylog_broker: BrokerProcess, topic: str
) -> None:
    assert partition_count(skylog_broker, topic) == DEFAULT_PARTITIONS


def test_a_new_topic_has_as_many_partitions_as_the_broker_says(three_by_default: BrokerProcess, topic: str) -> None:
    assert partition_count(three_by_default, topic) == 3


def test_a_new_topic_has_as_many_partitions_as_the_option_says(
    three_by_default: BrokerProcess, closed: BrokerProcess, topic: str
) -> None:
    assert partition_count(three_by_default, topic, topicPartitions="4") == 4
    assert partition_count(closed, topic, topicPartitions="4") == 4


def test_a_broker_that_does_not_create_topics_is_obeyed(closed: BrokerProcess, topic: str) -> None:
    with pytest.raises(KafkaError, match=f"create it with: skylog topics create {topic}"):
        partition_count(closed, topic)
    assert topic not in [found.name for found in Admin(closed.bootstrap).list_topics()]


def test_tasks_that_create_the_same_topic_at_the_same_time_agree(skylog_broker: BrokerProcess, topic: str) -> None:
    with ThreadPoolExecutor(4) as tasks:
        counts = set(tasks.map(lambda _: partition_count(skylog_broker, topic, topicPartitions="5"), range(4)))
    assert counts == {5}
