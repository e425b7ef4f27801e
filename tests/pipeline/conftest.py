"""The Spark session, the commands and the topics of the data source's tests; and databases."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.databases.servers import mongo_server, postgres_server
from tests.spark.conftest import commands, spark, spark_session, topics

__all__ = ["commands", "database", "mongo", "postgres", "spark", "spark_session", "table", "topics"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def mongo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mongo_server(tmp_path_factory.mktemp("mongo")) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres", "mongo"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database, one after the other."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'visits.db'}"
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def adaptive(spark_session: SparkSession) -> Iterator[None]:
    """Spark plans as it does by default, and joins small partitions: for tests of the number of files."""
    spark_session.conf.set("spark.sql.adaptive.enabled", "true")
    yield
    spark_session.conf.set("spark.sql.adaptive.enabled", "false")


@pytest.fixture
def table() -> str:
    """A name that no other test has taken."""
    return f"visits_{uuid.uuid4().hex[:8]}"
