"""The contract of every client through TLS: with SCRAM, and by mutual TLS. ACLs are on.

With every run a few tests of two clients; all tests of all clients with `make proof`. Only the client under test is on
the secured listener. What prepares and checks beside it uses another, plain one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka.helpers import create_ssl_context

from skylog.security.own_client import jaas_of
from skylog.security.scram import Credential, Mechanism
from tests.broker.process import BrokerThread
from tests.broker.test_tls import settings_in
from tests.proof import IS_FULL
from tests.security import certificates

from . import (
    contract,
    test_aiokafka,
    test_confluent_kafka,
    test_java,
    test_kafka_python,
    test_kafkajs,
    test_platformatic,
)
from .conftest import SETTINGS, java_peer, node_peer
from .peers.aiokafka_peer import AiokafkaPeer
from .peers.confluent import ConfluentPeer
from .peers.installation import JAVA_VERSIONS, NotAvailable, debian_program
from .peers.kafka_python import KafkaPythonPeer
from .peers.kcat import KcatPeer

USER, PASSWORD, MECHANISM = "alice", 'alice, "secret"', "SCRAM-SHA-512"
WAYS = ("SASL_SSL", "SSL")
LISTENERS = {
    "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.name.ssl.ssl.client.auth": "required",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{USER};User:ANONYMOUS",
}


@dataclass(frozen=True)
class Secured:
    """A broker with a listener of each kind, and the files of its clients."""

    thread: BrokerThread
    folder: Path

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.thread.broker.endpoints._bound[listener].port}"

    def librdkafka(self, way: str) -> dict[str, str]:
        found = {"security.protocol": way, "ssl.ca.location": f"{self.folder}/ca.pem"}
        if way == "SSL":
            return found | {
                "ssl.certificate.location": f"{self.folder}/own.pem",
                "ssl.key.location": f"{self.folder}/own.pem",
            }
        return found | {"sasl.mechanisms": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}

    def librdkafka_file(self, way: str) -> Path:
        lines = (f"{key}={value}" for key, value in self.librdkafka(way).items())
        return certificates.write(self.folder / f"librdkafka-{way}.properties", "\n".join(lines))

    def python(self, way: str) -> dict[str, Any]:
        own = f"{self.folder}/own.pem" if way == "SSL" else None
        context = create_ssl_context(cafile=f"{self.folder}/ca.pem", certfile=own, keyfile=own)
        found: dict[str, Any] = {"security_protocol": way, "ssl_context": context}
        if way == "SSL":
            return found
        return found | {"sasl_mechanism": MECHANISM, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}

    def node(self, way: str) -> Path:
        own = certificates.client()
        tls = {"ca": [certificates.authority().certificate], "servername": "localhost"}
        if way == "SSL":
            document: dict[str, Any] = {"ssl": tls | {"key": own.key, "cert": own.certificate}}
        else:
            document = {"ssl": tls, "sasl": {"mechanism": MECHANISM, "username": USER, "password": PASSWORD}}
        return certificates.write(self.folder / f"node-{way}.json", json.dumps(document))

    def java(self, way: str) -> Path:
        lines = [f"security.protocol={way}", "ssl.truststore.type=PEM", f"ssl.truststore.location={self.folder}/ca.pem"]
        if way == "SSL":
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={self.folder}/own.pem"]
        else:
            jaas = jaas_of(MECHANISM, USER, PASSWORD).replace("\\", "\\\\")  # as a properties file has it
            lines += [f"sasl.mechanism={MECHANISM}", f"sasl.jaas.config={jaas}"]
        return certificates.write(self.folder / f"java-{way}.properties", "\n".join(lines))


_running = ExitStack()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    folder = tmp_path_factory.mktemp("secured")
    own = certificates.client(USER)
    certificates.write(folder / "own.pem", own.key, own.certificate)
    thread = _running.enter_context(BrokerThread(folder / "data", settings_in(folder) | SETTINGS | LISTENERS))
    stored = {MECHANISM: Credential.of_password(Mechanism.SCRAM_SHA_512, PASSWORD).to_value()}
    thread.run(thread.broker.users.change(USER, lambda _: stored))
    return Secured(thread, folder)


@pytest.fixture(scope="module", autouse=True)
def the_broker_ends_with_this_file() -> Iterator[None]:
    """It is a thread of this process, and a simulation replaces clock and chance for all threads."""
    yield
    _running.close()


@pytest.fixture(scope="session")
def bootstrap(secured: Secured) -> str:
    """The plain listener, in place of the brokers of the other tests."""
    return secured.address("PLAINTEXT")


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def brokers(secured: Secured, way: str) -> str:
    """A client learns the address of the listener that it uses, and of no other."""
    return secured.address(way)


def confluent_peer(secured: Secured, way: str) -> Any:
    return nullcontext(ConfluentPeer(secured.address(way), secured.librdkafka(way)))


def aiokafka_peer(secured: Secured, way: str) -> Any:
    return closing(AiokafkaPeer(secured.address(way), secured.python(way)))


Open = Callable[[Secured, str], Any]
SHORTLY: list[tuple[Open, str]] = [(confluent_peer, "SASL_SSL"), (aiokafka_peer, "SSL")]


class TestShortly(contract.ProducesIdempotently):
    @pytest.fixture(scope="class", params=SHORTLY, ids=lambda case: case[0].__name__)
    @classmethod
    def peer(cls, request: pytest.FixtureRequest, secured: Secured) -> Iterator[Any]:
        open_peer, way = request.param
        with open_peer(secured, way) as peer:
            yield peer

    def test_it_is_not_the_plain_listener_that_is_used(self, peer: Any, secured: Secured) -> None:
        assert peer.bootstrap != secured.address("PLAINTEXT")


class TestConfluentKafka(test_confluent_kafka.TestConfluentKafka):
    __test__ = IS_FULL

    @pytest.fixture(scope="class")
    @classmethod
    def peer(cls, secured: Secured, way: str) -> Iterator[Any]:
        with confluent_peer(secured, way) as peer:
            yield peer


class TestAiokafka(test_aiokafka.TestAiokafka):
    __test__ = IS_FULL

    @pytest.fixture(scope="class")
    @classmethod
    def peer(cls, secured: Secured, way: str) -> Iterator[Any]:
        with aiokafka_peer(secured, way) as peer:
            yield peer


class TestKafkaPython(test_kafka_python.TestKafkaPython):
    __test__ = IS_FULL

    @pytest.fixture(scope="class")
    @classmethod
    def peer(cls, secured: Secured, way: str) -> Iterator[Any]:
        with closing(KafkaPythonPeer(secured.address(way), secured.python(way))) as peer:
            yield peer


class TestKcat(contract.LooksUpOffsets):
    __test__ = IS_FULL

    @pytest.fixture
    def peer(self, secured: Secured, way: str, confluent: ConfluentPeer) -> Any:
        try:
            peer: Any = KcatPeer(secured.address(way), debian_program("kcat"), secured.librdkafka_file(way))
        except NotAvailable as reason:
            pytest.skip(f"no kcat: {reason}")
        peer.produce = confluent.produce  # which sets times
        return peer

    def test_it_produces_and_reads(self, secured: Secured, way: str, make_topic: contract.MakeTopic) -> None:
        try:
            peer = KcatPeer(secured.address(way), debian_program("kcat"), secured.librdkafka_file(way))
        except NotAvailable as reason:
            pytest.skip(f"no kcat: {reason}")
        topic = make_topic()
        peer.produce(topic, 0, contract.numbered(20), idempotent=True)
        with peer.open(topic, 0, 0) as reader:
            assert [record.value for record in reader.take(20)] == [each.value for each in contract.numbered(20)]


class TestKafkaJS(test_kafkajs.TestKafkaJS):
    __test__ = IS_FULL

    @pytest.fixture(scope="class")
    @classmethod
    def peer(cls, secured: Secured, way: str) -> Iterator[Any]:
        with closing(node_peer("kafkajs", secured.address(way), secured.node(way))) as peer:
            yield peer


class TestPlatformatic(test_platformatic.TestPlatformatic):
    __test__ = IS_FULL

    @pytest.fixture(scope="class")
    @classmethod
    def peer(cls, secured: Secured, way: str) -> Iterator[Any]:
        with closing(node_peer("platformatic", secured.address(way), secured.node(way))) as peer:
            peer.codecs = tuple(peer.driver.ask("codecs"))
            yield peer


class TestJava(test_java.TestJava):
    __test__ = IS_FULL

    @pytest.fixture(scope="class", params=JAVA_VERSIONS)
    @classmethod
    def peer(cls, request: pytest.FixtureRequest, secured: Secured, way: str) -> Iterator[Any]:
        with closing(java_peer(request.param, secured.address(way), secured.java(way))) as peer:
            yield peer
