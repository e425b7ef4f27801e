"""A cluster and its clients: what every test of this folder does around its faults."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from skylog.model import CONSUMER_OFFSETS_TOPIC
from skylog.simulation.checks import check
from skylog.testing import BrokerCluster
from tests.patience import patience

from .replica_logs import wait_until_identical
from .workload import Workload

PARTITIONS = 4
IN_SYNC_S = 30.0
_numbers = itertools.count(1)


@contextmanager
def clients_of(cluster: BrokerCluster, seed: int, **configs: str) -> Iterator[Workload]:
    """Clients of a new topic, for the time of the block. Afterwards the cluster is complete, and nothing was lost."""
    before = {node_id: len(broker.stderr()) for node_id, broker in cluster.brokers.items()}
    try:
        with _clients_of(cluster, seed, configs) as work:
            yield work
        for node_id, broker in cluster.brokers.items():
            said = broker.stderr()[before[node_id] :]
            assert "Traceback" not in said, f"broker {node_id}: {said[said.index('Traceback') :][:4000]}"
    except BaseException:
        for node_id, broker in cluster.brokers.items():
            print(f"broker {node_id}:", broker.stderr()[before[node_id] :])
        raise


@contextmanager
def _clients_of(cluster: BrokerCluster, seed: int, configs: Mapping[str, str]) -> Iterator[Workload]:
    with Workload(cluster.bootstrap, f"t{next(_numbers)}", PARTITIONS, seed=seed, **configs) as work:
        work.wait_for_progress("at the start")
        yield work
        wait_until_whole(cluster, work)
    print("seconds:", *(f"{seconds} {when};" for when, seconds in work.pauses))
    print(len(work.history.acknowledged), "acknowledged,", len(work.history.assignments), "assignments")
    check(work.history, {partition: dict(enumerate(log)) for partition, log in work.stored.items()})
    data_dirs = {node_id: broker.data_dir for node_id, broker in cluster.brokers.items()}
    wait_until_identical(data_dirs, [work.topic, CONSUMER_OFFSETS_TOPIC])


def wait_until_whole(cluster: BrokerCluster, work: Workload) -> None:
    """Wait until all replicas are in sync, and the clients work."""
    for topic in (work.topic, CONSUMER_OFFSETS_TOPIC):
        cluster.wait_until_in_sync(topic, seconds=patience(IN_SYNC_S))
    work.wait_for_progress("when whole")
