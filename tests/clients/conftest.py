"""The brokers under test and the foreign clients, one of each per test process.

The tests run against a standalone broker and against a cluster of three: those of `ON_CLUSTERS` with every run, the
others with SKYLOG_PROOF=full. SKYLOG_TEST_BOOTSTRAP=host:port names running brokers, of any make, to run them against.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from skylog.testing import BrokerCluster
from tests.proof import IS_FULL

from .peers.confluent import ConfluentPeer
from .peers.driven import DrivenPeer, Driver
from .peers.installation import JAVA_VERSIONS, NotAvailable, debian_program, go_program, java_classpath, node_modules
from .peers.kcat import KcatPeer
from .peers.peer import Place, Refused, until

_HERE = Path(__file__).parent
_STARTED = "listening on "
_numbers = itertools.count()
BROKER_DEFAULT = -1
"""As many replicas as the broker gives a topic by default: one, or three in a cluster."""


_RUNNING = os.environ.get("SKYLOG_TEST_BOOTSTRAP")

ON_CLUSTERS = (
    "test_confluent_kafka",
    "test_groups_members.test_a_member_reads_everything_and_the_next_goes_on_where_it_committed",
    "test_groups_members.test_clients_of_all_kinds_share_a_group_by_the_assignor_that_all_know",
)
"""Modules, and tests of others."""

SETTINGS = {"group.consumer.min.heartbeat.interval.ms": "300", "group.consumer.heartbeat.interval.ms": "300"}
STANDALONE_ONLY = ("test_administration", "test_secured_contract")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on its kinds of brokers. The cluster comes first: it ends when the standalone broker starts."""
    if "bootstrap" in metafunc.fixturenames:
        module = metafunc.module.__name__.rpartition(".")[2]
        is_named = not {module, f"{module}.{metafunc.function.__name__}"}.isdisjoint(ON_CLUSTERS)
        wanted = is_named or (IS_FULL and module not in STANDALONE_ONLY)
        kinds = ["running"] if _RUNNING else ["cluster", "standalone"] if wanted else ["standalone"]
        metafunc.parametrize("bootstrap", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Addresses of the brokers under test, as host:port, separated by commas."""
    kind = getattr(request, "param", "running" if _RUNNING else "standalone")  # the fixture of a class has no parameter
    match kind:
        case "running":
            yield str(_RUNNING)
        case "cluster":
            with BrokerCluster(settings=SETTINGS) as cluster:
                yield cluster.bootstrap
        case _:
            with _standalone(tmp_path_factory.mktemp("clients")) as address:
                yield address


@pytest.fixture
def brokers(bootstrap: str) -> str:
    """The addresses that the client under test learns from the brokers."""
    return bootstrap


@contextmanager
def _standalone(folder: Path) -> Iterator[str]:
    skylog = Path(sys.executable).with_name("skylog")
    command = [
        str(skylog),
        "serve",
        "--data-dir",
        str(folder / "data"),
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-console",
        *(part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")),
    ]
    log = folder / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(_STARTED), f"skylog serve said {line!r}, and in {log}: {log.read_text()}"
        try:
            yield line.removeprefix(_STARTED).strip()
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def new_name() -> str:
    """A topic name that nothing has used."""
    return f"clients-{next(_numbers)}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def confluent(bootstrap: str) -> ConfluentPeer:
    return ConfluentPeer(bootstrap)


def _leads(confluent: ConfluentPeer, topic: str, partition: int) -> bool:
    """Whether the leader of a partition serves it. Until then, what is sent with acks=0 is lost."""
    try:
        return confluent.offset_for(topic, partition, Place.END) == 0
    except Refused:
        return False


@pytest.fixture
def make_topic(confluent: ConfluentPeer) -> Iterator[Callable[..., str]]:
    """Create topics that are ready for use, for tests which are not about creating them."""
    made: list[str] = []

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"clients-{next(_numbers)}-{uuid.uuid4().hex[:8]}"
        confluent.create_topic(name, partitions, BROKER_DEFAULT, config)
        made.append(name)
        until(lambda: name in confluent.topics(), "the new topic in the metadata")
        until(lambda: all(_leads(confluent, name, index) for index in range(partitions)), "its leaders")
        return name

    yield make
    if made:
        confluent.admin.delete_topics(made)


@pytest.fixture(scope="session")
def kcat(bootstrap: str) -> KcatPeer:
    try:
        return KcatPeer(bootstrap, debian_program("kcat"))
    except NotAvailable as reason:
        pytest.skip(f"no kcat: {reason}")


def node_peer(name: str, bootstrap: str, security: Path | None = None) -> DrivenPeer:
    """A client on node. `security` is a JSON file with TLS and the login."""
    try:
        modules = node_modules(_HERE / name, name)
    except NotAvailable as reason:
        pytest.skip(f"no {name}: {reason}")
    command = ["node", str(_HERE / name / "driver.mjs"), bootstrap]
    environment = {**os.environ, "PEER_MODULES": str(modules)}
    if security is not None:
        environment["PEER_SECURITY"] = str(security)
    return DrivenPeer(Driver(command, environment))


@pytest.fixture(scope="session")
def kafkajs(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = node_peer("kafkajs", bootstrap)
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def platformatic(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = node_peer("platformatic", bootstrap)
    # Node itself compresses with zstd, from version 22.15 on.
    peer.codecs = tuple(peer.driver.ask("codecs"))
    yield peer
    peer.close()


def franz_peer(bootstrap: str) -> DrivenPeer:
    """franz-go, a client in Go."""
    try:
        program = go_program(_HERE / "franz", "franz", may_build=IS_FULL)
    except NotAvailable as reason:
        pytest.skip(f"no franz-go: {reason}")
    return DrivenPeer(Driver([str(program), bootstrap], os.environ))


@pytest.fixture(scope="session")
def franz(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = franz_peer(bootstrap)
    yield peer
    peer.close()


def java_peer(version: str, bootstrap: str, properties: Path | None = None) -> DrivenPeer:
    """A client on Java. `properties` is a file with TLS and the login."""
    try:
        classpath = java_classpath(_HERE / "java", "kafka-clients", version)
    except NotAvailable as reason:
        pytest.skip(f"no kafka-clients {version}: {reason}")
    # A driver lives for seconds: a small heap, one collector thread and the quick compiler start it sooner.
    flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    environment = dict(os.environ) if properties is None else {**os.environ, "PEER_PROPERTIES": str(properties)}
    return DrivenPeer(Driver(["java", *flags, "-cp", classpath, "Driver", bootstrap], environment))


@pytest.fixture(scope="session")
def java_3(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = java_peer(JAVA_VERSIONS[0], bootstrap)
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def java_4(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = java_peer(JAVA_VERSIONS[1], bootstrap)
    yield peer
    peer.close()
