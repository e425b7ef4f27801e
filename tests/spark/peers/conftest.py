"""The peers as fixtures: each is skipped with the reason where it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from skylog.client import Admin, Connection
from skylog.spark.session import make_active
from skylog.testing import BrokerProcess
from tests.spark.peers.jars import NoJarsError, connector_jars, kafka_jars
from tests.spark.peers.kafka import KafkaProcess

QUICK_CLEANING = {
    "log.cleaner.backoff.ms": "50",
    "log.flush.scheduler.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
}


class Peer:
    """Spark's own connector and ours, in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, form: str, options: dict[str, str]) -> dict[str, Any]:
        """All rows, the columns and the number of tasks."""
        frame = self._spark.read.format(form).options(**options).load()
        return {"columns": frame.dtypes, "tasks": frame.rdd.getNumPartitions(), "rows": rows(frame)}

    def stream(self, form: str, options: dict[str, str], checkpoint: str) -> list[list[Any]]:
        """What a query with trigger AvailableNow reads, by micro-batch."""
        found: list[list[Any]] = []
        frame = self._spark.readStream.format(form).options(**options).load()
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.append(rows(batch)))
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
        return found

    def write(self, form: str, options: dict[str, str], count: int, columns: list[str]) -> None:
        """The numbers up to `count` as rows of these expressions over `id`."""
        frame = self._spark.range(0, count, 1, 2).selectExpr(*columns)
        frame.write.format(form).options(**options).mode("append").save()

    def write_stream(self, form: str, options: dict[str, str], source: dict[str, str], columns: list[str]) -> None:
        """What our own source has, as a stream, and then as a stream with the same checkpoint again."""
        for _ in range(2):
            frame = self._spark.readStream.format("skylog").options(**source).load().selectExpr(*columns)
            frame.writeStream.format(form).options(**options).trigger(availableNow=True).start().awaitTermination()


def rows(frame: DataFrame) -> list[Any]:
    found = [_plain(row) for row in frame.collect()]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def _plain(value: Any) -> Any:
    match value:
        case Row():
            return {name: _plain(each) for name, each in value.asDict().items()}
        case list():
            return [_plain(each) for each in value]
        case bytes() | bytearray():
            return value.hex()
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


@pytest.fixture(scope="module")
def peer(spark_session: SparkSession) -> Peer:
    try:
        jars = connector_jars()
    except NoJarsError as error:
        pytest.skip(str(error))
    make_active(spark_session)
    for jar in jars:
        spark_session.sql(f"ADD JAR '{jar}'")
    return Peer(spark_session)


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    """A broker that compacts at once."""
    with BrokerProcess(settings=QUICK_CLEANING) as found:
        yield found


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> Admin:
    return Admin(Connection(broker.bootstrap))


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """Apache Kafka."""
    try:
        jars = kafka_jars()
    except NoJarsError as error:
        pytest.skip(str(error))
    with KafkaProcess(jars, tmp_path_factory.mktemp("kafka")) as found:
        yield found
