"""One Spark session for all tests that a worker has of this directory, and short ways to produce and to read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from skylog.spark.session import make_active, register_format
from skylog.testing import BrokerProcess

COMMAND_MASTER = ("--master", "local[1]", "--conf", "spark.driver.memory=1g")


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2,2]")  # a task that fails is tried again, as on a cluster
        .appName("skylog-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        # A few rows are sooner interpreted than compiled, and a plan for them needs no second thought. Commands,
        # examples and the demonstration run Spark as it is.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.ui.showConsoleProgress", "false")
        # What Spark adds for the one who debugs: a check after each rule of the optimizer, and the line of each call.
        .config("spark.sql.lightweightPlanChangeValidation", "false")
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register_format(session)
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: SparkSession) -> SparkSession:
    """The session, made active again, because earlier tests may have reconnected to its JVM."""
    make_active(spark_session)
    return spark_session


class Commands:
    """`skylog` as a process, where programs speak ASCII only; see `command_server`. `master` are options of all."""

    def __init__(
        self, log: IO[bytes], master: Sequence[str] = COMMAND_MASTER, variables: Mapping[str, str] | None = None
    ) -> None:
        self._master = master
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.command_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "COLUMNS": "200", "LC_ALL": "C", **(variables or {})},
        )

    def run(self, *arguments: object, directory: Path, code: int = 0) -> str:
        """Return the standard output of the command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"arguments": [*map(str, arguments), *self._master], "directory": str(directory)}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline() or '{"code": "the server has ended", "stderr": ""}')
        assert answer["code"] == code, answer["stderr"]
        said: str = answer["stdout"]
        return said

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with (tmp_path_factory.mktemp("commands") / "log").open("wb") as log:
        found = Commands(log)
        try:
            yield found
        finally:
            found.close()


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


@pytest.fixture
def topics(spark: SparkSession, skylog_broker: BrokerProcess) -> Topics:
    return Topics(spark, skylog_broker)
