"""One Spark session for all tests of this directory, and short ways to produce and to read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from skylog.testing import BrokerProcess


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers find the format in this environment
    session = (
        SparkSession.builder.master("local[2]")
        .appName("skylog-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Topics:
    """Reads topics of the test broker with the data source."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess) -> None:
        self.spark = spark
        self.bootstrap = broker.bootstrap

    def read(self, topic: str, **options: Any) -> DataFrame:
        return self._with(self.spark.read, topic, options)

    def stream(self, topic: str, **options: Any) -> DataFrame:
        return self._with(self.spark.readStream, topic, options)

    def _with(self, reader: Any, topic: str, options: dict[str, Any]) -> DataFrame:
        reader = reader.format("skylog").option("kafka.bootstrap.servers", self.bootstrap)
        if topic:
            reader = reader.option("subscribe", topic)
        frame: DataFrame = reader.options(**options).load()
        return frame


@pytest.fixture(scope="session")
def topics(spark: SparkSession, skylog_broker: BrokerProcess) -> Topics:
    return Topics(spark, skylog_broker)
