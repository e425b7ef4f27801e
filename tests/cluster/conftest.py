"""A real ZooKeeper, shared by the tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.java import RequirementError


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
    except RequirementError as error:
        pytest.skip(str(error))
    yield server
    server.stop()
