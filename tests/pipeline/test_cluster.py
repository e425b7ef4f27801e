"""One description of a cluster, for all that connects to it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from skylog import Admin
from skylog.pipeline.cluster import Cluster
from skylog.spark.errors import OptionError
from skylog.spark.topics import DEFAULT_PARTITIONS
from skylog.testing import BrokerProcess

OPTIONS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.ssl.truststore.location": "ca.pem",
    "Kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": 'Login required username="me" password="secret";',
    "failOnDataLoss": "false",
}


def test_how_to_connect_reaches_sources_sinks_and_clients() -> None:
    cluster = Cluster("host:9093", OPTIONS)
    assert cluster.source_options == {**OPTIONS, "kafka.bootstrap.servers": "host:9093"}
    assert cluster.kafka_options["kafka.security.protocol"] == "SASL_SSL"
    assert "failOnDataLoss" not in cluster.kafka_options
    assert cluster.library_settings == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "ca.pem",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "secret",
    }
    assert not cluster.connection().is_plaintext
    with pytest.raises(OptionError, match="use PEM files"):
        Cluster("host:9093", {"kafka.ssl.truststore.type": "JKS"}).connection()


def test_without_options_the_file_of_the_environment_says_how_to_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=elsewhere:1\nsecurity.protocol=SSL\nssl.truststore.location=ca.pem\n")
    monkeypatch.setenv("SKYLOG_CONFIG", str(path))
    cluster = Cluster("host:9093", {"failOnDataLoss": "false"})
    found = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "ca.pem"}
    assert cluster.source_options == found | {"failOnDataLoss": "false", "kafka.bootstrap.servers": "host:9093"}
    assert cluster.kafka_options == found | {"kafka.bootstrap.servers": "host:9093"}
    assert cluster.library_settings == {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}
    assert Cluster("host:9093", OPTIONS).library_settings["security.protocol"] == "SASL_SSL"


def test_a_cluster_is_given_by_its_address() -> None:
    assert Cluster.of("host:1") == Cluster("host:1")
    assert Cluster.of(Cluster("host:1", OPTIONS)).options == OPTIONS
    assert Cluster.of(None).bootstrap == "127.0.0.1:9092"


def test_a_topic_is_created_once_with_the_partitions_of_another(skylog_broker: BrokerProcess) -> None:
    cluster, name = Cluster(skylog_broker.bootstrap), f"made-{uuid.uuid4().hex[:8]}"
    assert cluster.ensure_topic(name, 3, {"cleanup.policy": "compact"})
    assert not cluster.ensure_topic(name, 5)
    assert cluster.ensure_topic(f"{name}-again", like=name)
    admin = Admin(skylog_broker.bootstrap)
    assert [len(topic.partitions) for topic in admin.describe_topics([name, f"{name}-again"])] == [3, 3]


def test_a_topic_that_is_like_no_other_gets_the_default_of_the_sink(skylog_broker: BrokerProcess) -> None:
    cluster, name = Cluster(skylog_broker.bootstrap), f"made-{uuid.uuid4().hex[:8]}"
    assert cluster.ensure_topic(name, like="missing")
    assert len(Admin(skylog_broker.bootstrap).describe_topic(name).partitions) == DEFAULT_PARTITIONS
