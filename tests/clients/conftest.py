"""The broker under test and the foreign clients, one of each per test process.

SKYLOG_TEST_BOOTSTRAP=host:port names a running broker, of any make; otherwise skylog is started for the run.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from .peers.confluent import ConfluentPeer
from .peers.driven import DrivenPeer, Driver
from .peers.installation import JAVA_VERSIONS, NotAvailable, debian_program, java_classpath, node_modules
from .peers.kcat import KcatPeer
from .peers.peer import until

_HERE = Path(__file__).parent
_STARTED = "listening on "
_numbers = itertools.count()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the broker under test, as host:port."""
    running = os.environ.get("SKYLOG_TEST_BOOTSTRAP")
    if running:
        yield running
        return
    folder = tmp_path_factory.mktemp("clients")
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


@pytest.fixture
def make_topic(confluent: ConfluentPeer) -> Iterator[Callable[..., str]]:
    """Create topics that are ready for use, for tests which are not about creating them."""
    made: list[str] = []

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"clients-{next(_numbers)}-{uuid.uuid4().hex[:8]}"
        confluent.create_topic(name, partitions, config=config)
        until(lambda: name in confluent.topics(), "the new topic in the metadata")
        made.append(name)
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


def _node_peer(name: str, bootstrap: str) -> DrivenPeer:
    try:
        modules = node_modules(_HERE / name, name)
    except NotAvailable as reason:
        pytest.skip(f"no {name}: {reason}")
    command = ["node", str(_HERE / name / "driver.mjs"), bootstrap]
    return DrivenPeer(Driver(command, {**os.environ, "PEER_MODULES": str(modules)}))


@pytest.fixture(scope="session")
def kafkajs(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = _node_peer("kafkajs", bootstrap)
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def platformatic(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = _node_peer("platformatic", bootstrap)
    # Node itself compresses with zstd, from version 22.15 on.
    peer.codecs = tuple(peer.driver.ask("codecs"))
    yield peer
    peer.close()


def _java_peer(version: str, bootstrap: str) -> DrivenPeer:
    try:
        classpath = java_classpath(_HERE / "java", version)
    except NotAvailable as reason:
        pytest.skip(f"no kafka-clients {version}: {reason}")
    # A driver lives for seconds: a small heap, one collector thread and the quick compiler start it sooner.
    flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return DrivenPeer(Driver(["java", *flags, "-cp", classpath, "Driver", bootstrap], os.environ))


@pytest.fixture(scope="session")
def java_3(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = _java_peer(JAVA_VERSIONS[0], bootstrap)
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def java_4(bootstrap: str) -> Iterator[DrivenPeer]:
    peer = _java_peer(JAVA_VERSIONS[1], bootstrap)
    yield peer
    peer.close()
