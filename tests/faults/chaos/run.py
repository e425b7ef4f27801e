"""One run: clients, a storm of faults, calm, and the checks of the simulation."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.simulation import checks
from skylog.simulation.history import Value
from skylog.testing import BrokerCluster

from ..cluster.arena import wait_until_whole
from ..cluster.nemesis import new_cluster
from ..cluster.replica_logs import wait_until_identical
from ..cluster.workload import Workload
from ..cluster.zookeeper_cluster import ZooKeeperCluster
from .faults import Storm, faults_of
from .java_clients import JavaClients, NoJavaClientsError
from .namespaces import NamespaceCluster, Network, NoNamespacesError
from .report import Outcome
from .spark_client import NoSparkError, SparkCopy
from .timeline import Sampler, Timeline

TOPIC = "chaos"
PARTITIONS = 4
SESSION_MS = 4000
LAST_LINES = 150
"""How much of each broker's log is shown with a failed run."""
CONFLUENT = "confluent-kafka: two idempotent producers, a group of two members, two watchers"


@dataclass
class Arena:
    """A cluster, what runs it, and what could not be had for it."""

    cluster: BrokerCluster
    zookeeper: ZooKeeperServer | None = None
    has_netem: bool = False
    missing: list[str] = field(default_factory=list)


@contextmanager
def best_arena(directory: Path) -> Iterator[Arena]:
    """Three brokers on ZooKeeper, in network namespaces if possible, otherwise behind proxies."""
    with ExitStack() as stack:
        missing: list[str] = []
        try:
            network = Network(3)
            stack.callback(network.close)
            server = stack.enter_context(ZooKeeperServer(directory / "zookeeper", network.host(254)))
            cluster: BrokerCluster = NamespaceCluster(network, server, SESSION_MS)
            has_netem = network.has_netem
        except NoNamespacesError as error:
            missing.append(f"network namespaces ({error}); connections are cut by proxies")
            server = stack.enter_context(ZooKeeperServer(directory / "zookeeper"))
            cluster, has_netem = ZooKeeperCluster(server, SESSION_MS), False
        if not has_netem:
            missing.append("delay and loss: the kernel has no netem")
        stack.enter_context(cluster)
        stack.callback(lambda: None if server.is_running else server.start())
        yield Arena(cluster, server, has_netem, missing)


@contextmanager
def small_arena() -> Iterator[Arena]:
    """Three brokers on the store of the test kit, without a JVM."""
    with new_cluster() as cluster:
        yield Arena(cluster)


def run(arena: Arena, seconds: float, seed: int, directory: Path, *, others: bool = True) -> Outcome:
    """Run the clients for some time under faults, and check what they saw. `others` are Java's and Spark's clients."""
    cluster = arena.cluster
    said = {node: len(broker.stderr()) for node, broker in cluster.brokers.items()}
    outcome = Outcome(seed, Timeline(), [], [CONFLUENT], list(arena.missing))
    work = Workload(cluster.bootstrap, TOPIC, PARTITIONS, seed=seed)
    java, spark = _others(cluster.bootstrap, work, directory, outcome.missing) if others else (None, None)
    try:
        with work:
            if java is not None:
                java.start()
            _blow(arena, work, outcome.timeline, seconds, seed)
            if java is not None:
                java.stop()
        stored = work.stored
        if java is not None:
            java.finish(stored)
            outcome.clients.append(java.description)
        logs = {partition: dict(enumerate(log)) for partition, log in stored.items()}
        outcome.violations += checks.violations(work.history, logs)
        outcome.figures.append(f"offsets that members committed again without an answer: {len(work.history.given_up)}")
        if java is not None:
            for rule in (checks.inconsistent_reads, checks.nonmonotonic_polls, checks.unseen):
                outcome.violations += rule(java.reads, logs)
        if spark is not None:
            outcome.violations += _check_table(spark, stored)
            outcome.clients.append(f"Spark: a table of {sum(map(len, stored.values()))} rows")
    except Exception as error:
        error.add_note(_what_happened(cluster, outcome.timeline))
        raise
    finally:
        if spark is not None:
            spark.close()
    wait_until_identical({node: broker.data_dir for node, broker in cluster.brokers.items()}, [TOPIC])
    for node, broker in cluster.brokers.items():
        if "Traceback" in (text := broker.stderr()[said[node] :]):
            outcome.violations.append(f"traceback of broker {node}: {text[text.index('Traceback') :][:1500]}")
    return outcome


def _what_happened(cluster: BrokerCluster, timeline: Timeline) -> str:
    """Return the faults, the state of the cluster and the last lines of the brokers' logs: why a run has ended."""
    lines = [f"{span.began_s:.1f} to {span.ended_s or -1:.1f} s: {span.name}, {span.victim}" for span in timeline.spans]
    entries = cluster.store.entries()
    lines += [f"{path}: {entry.value}" for path, entry in sorted(entries.items()) if "/configs" not in path]
    for node, broker in cluster.brokers.items():
        lines += [f"broker {node}{' runs' if broker.is_running else ' does not run'}. Its log ends with:"]
        lines += broker.stderr().splitlines()[-LAST_LINES:]
    return "\n".join(lines)


def _blow(arena: Arena, work: Workload, timeline: Timeline, seconds: float, seed: int) -> None:
    """Let faults happen for some time. Return when the cluster is whole again."""
    work.wait_for_progress("at the start", seconds=60)
    history = work.history
    sampler = Sampler(timeline, lambda: len(history.acknowledged), lambda: sum(work.consumed().values()))
    sampler.start()
    faults = faults_of(arena.zookeeper, has_netem=arena.has_netem)
    storm = Storm(arena.cluster, TOPIC, faults, random.Random(seed), timeline, lambda: sampler.now_s)
    try:
        storm.blow(seconds)
    finally:
        storm.calm()
    wait_until_whole(arena.cluster, work)
    sampler.stop()


def _others(
    bootstrap: str, work: Workload, directory: Path, missing: list[str]
) -> tuple[JavaClients | None, SparkCopy | None]:
    java, spark = None, None
    try:
        java = JavaClients(bootstrap, TOPIC, PARTITIONS, work.history)
    except NoJavaClientsError as error:
        missing.append(str(error))
    try:
        spark = SparkCopy(bootstrap, TOPIC, directory / "spark")
    except NoSparkError as error:
        missing.append(str(error))
    return java, spark


def _check_table(spark: SparkCopy, stored: dict[int, list[Value]]) -> list[str]:
    values = spark.finish()
    produced = [value for log in stored.values() for value in log]
    return [f"Spark: {line}" for line in checks.copied_once(produced, {0: dict(enumerate(values))})]


def run_here(seconds: float, seed: int) -> Outcome:
    """Run everything that this machine allows."""
    with tempfile.TemporaryDirectory(prefix="skylog-chaos-") as name, best_arena(Path(name)) as arena:
        return run(arena, seconds, seed, Path(name))
