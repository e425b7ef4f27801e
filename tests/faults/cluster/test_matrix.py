"""Kafka's replication test: brokers are stopped, killed and bounced, and here also paused, cut off and expired.

Two idempotent producers write to four partitions with three replicas, `acks=all` and `min.insync.replicas=2`, and a
group reads them. Whatever happens to one broker, both go on within seconds, and nothing is lost, repeated or reordered.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from skylog.testing import BrokerCluster
from tests.proof import IS_FULL, in_proof
from tests.seeds import seed

from .arena import clients_of, wait_until_whole
from .nemesis import FAULTS, SESSION_MS, VICTIMS, Storm, new_cluster

BOUNCES = 5
Cell = tuple[str, str]

SHORT: list[Cell] = [
    ("killed", "leader"),
    ("paused", "leader"),
    ("stopped", "controller"),
    ("cut off silently", "follower"),
]
CELLS: list[list[Cell]] = [[cell] for cell in product(FAULTS, VICTIMS)] if IS_FULL else [SHORT]


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Every test leaves it complete."""
    with new_cluster() as cluster:
        yield cluster


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cells", CELLS, ids=lambda cells: ", ".join(map(" ".join, cells)))
def test_the_cluster_goes_on_without_one_broker_and_loses_nothing(
    cluster: BrokerCluster, cells: Sequence[Cell]
) -> None:
    with clients_of(cluster, seed()) as work:
        for fault, victim in cells:
            node_id = VICTIMS[victim](cluster, work.topic)
            with FAULTS[fault](cluster, node_id):
                work.wait_for_progress(f"with the {victim} {fault}")
            wait_until_whole(cluster, work)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", VICTIMS if IS_FULL else ["leader"])
@pytest.mark.parametrize("fault", ["killed", "stopped"] if IS_FULL else ["killed"])
def test_a_broker_that_bounces_loses_nothing(cluster: BrokerCluster, fault: str, victim: str) -> None:
    origin = seed()
    rng = random.Random(f"{origin}/{fault}/{victim}")
    with clients_of(cluster, origin) as work:
        for _ in range(BOUNCES):
            with FAULTS[fault](cluster, VICTIMS[victim](cluster, work.topic)):
                time.sleep(rng.choice([0, 0.1, 0.3]) if not IS_FULL else rng.uniform(0, 2 * SESSION_MS / 1000))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(30))
@in_proof
def test_a_storm_of_faults_loses_nothing(cluster: BrokerCluster, number: int) -> None:
    """`tests/faults/chaos/test_chaos.py` is its short form."""
    origin = seed()
    storm = Storm(cluster, f"{origin}/{number}")
    with clients_of(cluster, origin) as work:
        try:
            storm.blow(15)
        finally:
            storm.calm()
            print(*storm.told, sep=", ")
        work.wait_for_progress("after the storm", seconds=60)
