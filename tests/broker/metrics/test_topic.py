"""--metrics-topic: the broker's metrics through its own log."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

from skylog.broker.metrics import METRICS_TOPIC, MetricsTopic
from skylog.client import Admin, Connection
from skylog.errors import KafkaError
from skylog.testing import BrokerProcess, consume, wait_until
from tests.broker.conftest import create_topic
from tests.broker.local_cluster import LocalCluster
from tests.broker.process import BrokerThread, until
from tests.broker.raw import RawClient
from tests.broker.test_flush import Disk

from .reading import collected, value


def test_every_value_is_a_message_with_the_name_as_its_key() -> None:
    with BrokerProcess(options=["--metrics-topic"]) as broker:
        admin = Admin(Connection(broker.bootstrap))
        wait_until(lambda: METRICS_TOPIC in {topic.name for topic in admin.list_topics()}, "the topic")
        wait_until(lambda: bool(consume(broker.bootstrap, METRICS_TOPIC)), "the first metrics")
        messages = consume(broker.bootstrap, METRICS_TOPIC)
        configs = {each.name: each.value for each in admin.describe_configs(METRICS_TOPIC)}
    rows = [json.loads(message.value or b"") for message in messages]
    assert all(message.key == row["name"].encode() for message, row in zip(messages, rows, strict=True))
    assert all(row.keys() == {"node_id", "time_ms", "name", "labels", "value"} for row in rows)
    by_name = {row["name"]: row for row in rows}
    assert by_name["skylog_build_info"]["value"] == 1
    assert by_name["kafka_log_log_size"]["labels"] == {"topic": METRICS_TOPIC, "partition": "0"}
    assert "kafka_log_logflushstats_logflushrateandtimems_count" in by_name
    assert not any(name.endswith("_bucket") for name in by_name)
    assert configs["retention.ms"] == "604800000"


def test_a_round_that_fails_is_counted_and_the_next_one_is_tried(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as thread, RawClient(thread.port) as client:
        create_topic(client, METRICS_TOPIC.replace("_", "."))  # whose name leaves no room for the other
        publisher = MetricsTopic(thread.broker, interval_s=0.02)
        thread.broker.background["metrics topic"] = publisher
        thread.look(lambda _: publisher.start())
        name = "skylog_background_failures_total"
        until(lambda: value(collected(thread), name, job="metrics topic") >= 2, "failures")
        topic = thread.broker.metadata.image.topics[METRICS_TOPIC.replace("_", ".")]
        thread.run(thread.broker.topics.delete(topic))
        until(lambda: bool(thread.look(lambda broker: broker.replicas.of_topic(METRICS_TOPIC))), "the topic")
        until(lambda: client.end_offset(METRICS_TOPIC) > 0, "metrics in it")
        thread.run(publisher.stop())


def test_a_round_is_over_when_the_flush_policy_is_kept(tmp_path: Path) -> None:
    disk = Disk()
    settings = {"log.flush.interval.messages": "1"}
    with BrokerThread(tmp_path / "data", settings, disk.open_file) as thread:
        publisher = MetricsTopic(thread.broker)
        thread.run(publisher.publish())
        finished = disk.finished
        disk.gate.clear()
        began = disk.began
        round_ = threading.Thread(target=lambda: thread.run(publisher.publish()))
        round_.start()
        try:
            until(lambda: disk.began > began, "the fsync to begin")
            round_.join(0.1)
            is_waiting = round_.is_alive()
        finally:
            disk.gate.set()
        round_.join()
        assert is_waiting
        assert disk.finished > finished


async def publish_when_there_is_a_leader(publisher: MetricsTopic) -> None:
    while True:
        try:
            return await publisher.publish()
        except KafkaError as error:
            if not error.code.retriable:
                raise
        await asyncio.sleep(0.05)


def test_all_brokers_of_a_cluster_publish_to_the_leader_of_the_topic(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:

        async def publish_at_once() -> None:
            publishers = map(MetricsTopic, cluster.brokers.values())
            await asyncio.gather(*map(publish_when_there_is_a_leader, publishers))

        cluster.run(publish_at_once())
        messages = consume(f"127.0.0.1:{cluster.ports[1]}", METRICS_TOPIC)
        assert {json.loads(message.value or b"")["node_id"] for message in messages} == {1, 2, 3}


def test_too_few_brokers_to_create_the_topic_are_no_failure_for_a_while(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 2, {"default.replication.factor": "3"}) as cluster:
        publisher = cluster.look(1, lambda broker: MetricsTopic(broker, interval_s=0.01))
        cluster.look(1, lambda _: publisher.start())
        cluster.start(3)
        until(lambda: METRICS_TOPIC in cluster.brokers[1].metadata.image.topics, "the topic")
        assert publisher.failures == 0
        cluster.run(publisher.stop())
