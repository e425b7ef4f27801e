"""Each kind of database that visits can be kept in, for tests that hold for all of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.jobs.visits.databases import mongo_server, postgres_server


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
def table() -> str:
    """A name that no other test has taken."""
    return f"visits_{uuid.uuid4().hex[:8]}"
