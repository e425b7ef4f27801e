"""The clients of a cluster on a real ZooKeeper, while the leader is killed, and while ZooKeeper or a part of it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.java import RequirementError, find_java
from tests.conftest import HAS_SPARK
from tests.proof import IS_FULL, in_proof
from tests.seeds import seed

from .arena import clients_of, wait_until_whole
from .ensemble import Ensemble
from .nemesis import VICTIMS, killed, paused, stopped
from .zookeeper_cluster import ZooKeeperCluster

SESSION_MS = 4000
LONG_SESSION_MS = 20_000
"""Longer than an ensemble needs for an election on a busy machine."""


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    if not HAS_SPARK:
        pytest.skip("pip install -e '.[spark]'")
    try:
        find_java("ZooKeeper")
    except RequirementError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(server: ZooKeeperServer) -> Iterator[ZooKeeperCluster]:
    with ZooKeeperCluster(server, SESSION_MS) as cluster:
        yield cluster
        if not server.is_running:
            server.start()


@pytest.mark.timeout(600)
def test_brokers_fail(cluster: ZooKeeperCluster) -> None:
    faults = [killed, stopped, paused] if IS_FULL else [killed]
    with clients_of(cluster, seed()) as work:
        for fault in faults:
            for victim in VICTIMS if IS_FULL else ["leader"]:
                with fault(cluster, VICTIMS[victim](cluster, work.topic)):
                    work.wait_for_progress(f"with the {victim} {fault.__name__}")
                wait_until_whole(cluster, work)


@pytest.mark.timeout(600)
def test_zookeeper_is_away_for_less_and_for_more_than_a_session(
    cluster: ZooKeeperCluster, server: ZooKeeperServer
) -> None:
    with clients_of(cluster, seed()) as work:
        server.kill()
        work.wait_for_progress("without ZooKeeper")
        server.start()
        work.wait_for_progress("with ZooKeeper again")
        server.kill()
        time.sleep(SESSION_MS / 1000 + 1)
        server.start()
        work.wait_for_progress("after the sessions", seconds=40)


@in_proof
@pytest.mark.timeout(600)
def test_servers_of_an_ensemble_fail(tmp_path: Path) -> None:
    """The brokers keep their sessions. While two of the three servers are there, another leader is elected as usual."""
    with Ensemble(tmp_path) as ensemble, ZooKeeperCluster(ensemble, LONG_SESSION_MS) as cluster:
        before = cluster.store.entries("/incarnations/")
        with clients_of(cluster, seed()) as work:
            for _ in range(2):
                lost = ensemble.leader
                lost.kill()
                work.wait_for_progress("without the leader of the ensemble")
                assert cluster.store.entries("/incarnations/") == before, "a session has expired"
                lost.start()
                work.wait_for_progress("with all servers of the ensemble")
            lost = ensemble.leader
            lost.kill()
            with killed(cluster, VICTIMS["leader"](cluster, work.topic)):
                work.wait_for_progress("without the leader and without the leader of the ensemble")
            lost.start()
            wait_until_whole(cluster, work)
