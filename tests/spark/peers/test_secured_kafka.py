"""Jobs on Apache Kafka with TLS and SASL, by one description of the cluster. The short form is test_security.py."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from skylog.job_status import JOBS_TOPIC
from skylog.pipeline import Cluster, Table, Topic, job
from skylog.pipeline.increments import Increments
from skylog.testing import consume
from tests.pipeline.delta_readers import query
from tests.proof import in_proof
from tests.spark.peers.jars import NoJarsError, kafka_jars
from tests.spark.peers.kafka import SECURED_PASSWORD, SECURED_USER, KafkaProcess

pytestmark = in_proof


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    try:
        jars = kafka_jars()
    except NoJarsError as error:
        pytest.skip(str(error))
    with KafkaProcess(jars, tmp_path_factory.mktemp("kafka"), is_secured=True) as found:
        yield found


def cluster(kafka: KafkaProcess, mechanism: str, password: str = SECURED_PASSWORD) -> Cluster:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    login = f'org.apache.kafka.common.security.{module} required username="{SECURED_USER}" password="{password}";'
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.truststore.location": str(kafka.authority),
    }
    return Cluster(kafka.secured, options)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_job_reads_and_writes_a_topic_and_a_table(
    spark: SparkSession, kafka: KafkaProcess, mechanism: str, tmp_path: Path
) -> None:
    secured, source = cluster(kafka, mechanism), f"source-{uuid.uuid4().hex[:8]}"
    secured.ensure_topic(source, 2)
    with secured.producer() as producer, producer.batch():
        for number in range(100):
            producer.send(source, {"id": number}, str(number))

    @job(source, Topic(f"{source}-copy"), schema="id INT", name=f"copy-{source}")
    def copy(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("CAST(id AS STRING) AS key", "id")

    @job(source, Table(tmp_path / "table"), schema="id INT", name=f"table-{source}")
    def table(rows: DataFrame) -> DataFrame:
        return rows.select("id")

    copy.run(spark, secured, once=True, state=tmp_path / "state")
    table.run(spark, secured, once=True)
    values = [json.loads(message.value or b"") for message in consume(kafka.bootstrap, f"{source}-copy")]
    assert sorted(each["id"] for each in values) == list(range(100))
    assert query(tmp_path / "table", "SELECT count(DISTINCT id) FROM t") == [(100,)]
    assert sum(Increments(secured, [f"{source}-copy"]).end_offsets().values()) == 100
    names = {(message.key or b"").decode().partition(":")[0] for message in consume(kafka.bootstrap, JOBS_TOPIC)}
    assert {copy.name, table.name} <= names


def test_a_wrong_password_is_told(spark: SparkSession, kafka: KafkaProcess, tmp_path: Path) -> None:
    right = cluster(kafka, "PLAIN")
    right.ensure_topic("known", 1)
    options = {**cluster(kafka, "PLAIN", "wrong").kafka_options, "topic": "known"}
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("skylog").options(**options)
    with pytest.raises(Exception, match=f"refuses user '{SECURED_USER}': Authentication failed"):
        rows.option("stagingLocation", str(tmp_path)).mode("append").save()
