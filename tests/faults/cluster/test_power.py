"""Machines lose power or their disks: what was not on disk is gone, and the replicas that come back do not know.

With `flush.messages=1` every acknowledged message is on the disks of all replicas in sync. All machines may lose power
at once then. Otherwise one may, until the others have brought it up to date.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.proof import IS_FULL, proof
from tests.seeds import seed

from .arena import clients_of, wait_until_whole
from .nemesis import SESSION_MS, VICTIMS
from .power import MachineCluster, new_machines

NEVER = str(2**63 - 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MachineCluster]:
    """Every acknowledged message is on disk, unless its topic says otherwise. Every test leaves it complete."""
    with new_machines(log_flush_interval_messages="1") as cluster:
        yield cluster


@pytest.mark.timeout(900)
def test_with_every_message_on_disk_all_machines_may_lose_power_at_once(cluster: MachineCluster) -> None:
    origin = seed()
    rng = random.Random(origin)
    gone = []
    with clients_of(cluster, origin) as work:
        for _ in range(proof(20, 1)):
            if rng.random() < 0.3:
                node_id = rng.choice(list(cluster.brokers))
                cluster.kill(node_id)
                cluster.start(node_id)
            time.sleep(rng.uniform(0, 1))
            for broker in cluster.brokers.values():
                broker.pause()  # the power fails at the same moment
            gone.append([cluster.machine(node_id).lose_power() for node_id in cluster.brokers])
            for node_id in rng.sample(list(cluster.brokers), len(cluster.brokers)):
                cluster.brokers[node_id].start()
            cluster.start()
            work.wait_for_progress("with power again", seconds=40)
    print("bytes lost:", gone)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", VICTIMS if IS_FULL else ["leader"])
def test_one_machine_may_lose_power(cluster: MachineCluster, victim: str) -> None:
    origin = seed()
    rng = random.Random(f"{origin}/{victim}")
    gone = []
    with clients_of(cluster, origin, flush_messages=NEVER) as work:
        for _ in range(proof(10, 1)):
            node_id = VICTIMS[victim](cluster, work.topic)
            gone.append(cluster.machine(node_id).lose_power())
            time.sleep(rng.choice([0, 2 * SESSION_MS / 1000]))
            cluster.start(node_id)
            wait_until_whole(cluster, work)
    print("bytes lost:", gone)
    assert sum(gone) > 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", VICTIMS if IS_FULL else ["leader"])
def test_a_machine_with_an_empty_disk_catches_up(cluster: MachineCluster, victim: str) -> None:
    with clients_of(cluster, seed()) as work:
        node_id = VICTIMS[victim](cluster, work.topic)
        cluster.machine(node_id).lose_disk()
        cluster.start(node_id)
        wait_until_whole(cluster, work)
