"""Listeners with TLS: clients connect, mutual TLS gives a principal, certificates are reloaded, bad handshakes end."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Producer

from skylog.broker.session import Session
from skylog.errors import ConfigError, ErrorCode
from skylog.net import tls
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from skylog.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from skylog.protocol.metadata import MetadataRequest
from tests.patience import patience
from tests.security import certificates

from .conftest import create_topic
from .process import BrokerThread, until
from .raw import ClosedByBrokerError, RawClient, batch_of, fetch_request, produce_request, values_in

BOTH = {"listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}


class TlsClient(RawClient):
    """A raw client inside TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        except BaseException:
            self.socket.close()
            raise


def settings_in(folder: Path) -> dict[str, str]:
    server = certificates.server()
    trusted = certificates.write(folder / "ca.pem", certificates.authority().certificate)
    keystore = certificates.write(folder / "server.pem", server.key, server.certificate)
    return BOTH | {
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.location": str(trusted),
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Skylog\\\\, Inc[.]$/$1/,DEFAULT",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def thread(folder: Path) -> Iterator[BrokerThread]:
    with BrokerThread(folder / "data", settings_in(folder)) as running:
        yield running


def principals(thread: BrokerThread) -> set[tuple[str, str]]:
    def look(_: object) -> set[tuple[str, str]]:
        sessions = [connection.handler for connection in thread.broker.listener.connections]
        return {(session.listener, session.principal) for session in sessions if isinstance(session, Session)}

    return thread.look(look)


def test_the_principal_of_a_client_is_that_of_its_certificate(thread: BrokerThread, tmp_path: Path) -> None:
    with TlsClient(thread.port, certificates.context_of(tmp_path, certificates.client())) as alice:
        assert alice.ask(ApiVersionsRequest(), 0).error_code == 0
        assert ("SSL", "User:alice") in principals(thread)
    with TlsClient(thread.port, certificates.context_of(tmp_path)) as nobody:
        assert nobody.ask(ApiVersionsRequest(), 0).error_code == 0
        assert ("SSL", "User:ANONYMOUS") in principals(thread)


def test_each_listener_returns_its_own_address(thread: BrokerThread, tmp_path: Path) -> None:
    plain = thread.broker.endpoints._bound["PLAINTEXT"].port
    with TlsClient(thread.port, certificates.context_of(tmp_path)) as client:
        (broker,) = client.ask(MetadataRequest(topics=[]), 9).brokers
        assert (broker.host, broker.port) == ("127.0.0.1", thread.port)
    with RawClient(plain) as other:
        (broker,) = other.ask(MetadataRequest(topics=[]), 9).brokers
        assert (broker.host, broker.port) == ("127.0.0.1", plain)


def test_large_requests_and_responses_pass(thread: BrokerThread, tmp_path: Path) -> None:
    """Frames end inside records of TLS, and several lie in one: nothing may stay unread inside the transport."""
    with TlsClient(thread.port, certificates.context_of(tmp_path)) as client:
        create_topic(client, "large")
        sizes = [1, 20_000, 700_000, 3, 100_000, 16_384, 16_300, 900_000]
        frames = [client.encode(produce_request("large", batch_of(bytes(size))), 9) for size in sizes]
        client.send_bytes(b"".join(frames))
        for number in range(len(sizes)):
            (topic,) = client.receive().responses
            assert topic.partition_responses[0].base_offset == number
        fetched = client.fetch("large", 0, max_bytes=10_000_000, partition_max_bytes=10_000_000)
        assert [len(value or b"") for _, value in values_in(fetched.records)] == sizes


def test_a_client_that_does_not_read_gets_all_of_its_responses_later(thread: BrokerThread, tmp_path: Path) -> None:
    """A send that would block is repeated with the same bytes, though more responses wait behind it by then."""
    with TlsClient(thread.port, certificates.context_of(tmp_path)) as client:
        create_topic(client, "slow")
        for number in range(3):
            request = produce_request("slow", batch_of(bytes([number]) * 900_000))
            assert client.ask(request, 9).responses[0].partition_responses[0].base_offset == number
        asked = 8
        for _ in range(asked):
            client.send(fetch_request("slow", 0, max_bytes=10_000_000, partition_max_bytes=10_000_000), 12)
            client.send(ApiVersionsRequest(), 0)

        def is_choked(_: object) -> bool:
            return any(each._writing for each in thread.broker.listener.connections)

        until(lambda: thread.look(is_choked), "the broker waits for the client")
        for _ in range(asked):
            (topic,) = client.receive().responses
            found = [(len(value or b""), set(value or b"")) for _, value in values_in(topic.partitions[0].records)]
            assert found == [(900_000, {number}) for number in range(3)]
            assert client.receive().error_code == 0


def test_a_connection_ends_with_a_close_notify(thread: BrokerThread, tmp_path: Path) -> None:
    context = certificates.context_of(tmp_path)
    with (
        socket.create_connection(("127.0.0.1", thread.port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client,
    ):
        client.settimeout(patience(20))
        client.sendall(b"\xff\xff\xff\xff")  # no frame has this length
        assert client.recv(1) == b""


def test_what_came_before_a_reset_is_received() -> None:
    class Broken:
        """A socket that returns some bytes and then breaks."""

        def __init__(self) -> None:
            self.results: list[bytes | OSError] = [b"last", ConnectionResetError()]

        def fileno(self) -> int:
            return -1

        def pending(self) -> int:
            return 0

        def recv_into(self, buffer: memoryview) -> int:
            result = self.results.pop(0)
            if isinstance(result, OSError):
                raise result
            buffer[: len(result)] = result
            return len(result)

    transport = tls.TlsTransport(cast(ssl.SSLSocket, Broken()))
    buffer = memoryview(bytearray(100))
    assert transport.receive_into(buffer) == 4
    assert transport.has_pending
    assert transport.receive_into(buffer) == 0


def test_a_client_that_sends_tiny_records_does_not_keep_others_waiting() -> None:
    class Endless:
        """A socket from which another record of one byte can always be read."""

        def fileno(self) -> int:
            return -1

        def recv_into(self, buffer: memoryview) -> int:
            return 1

    transport = tls.TlsTransport(cast(ssl.SSLSocket, Endless()))
    assert transport.receive_into(memoryview(bytearray(1_000_000))) < 1000


def test_librdkafka_and_aiokafka_produce_and_consume(thread: BrokerThread, folder: Path, tmp_path: Path) -> None:
    own = certificates.client("bob")
    key = certificates.write(tmp_path / "key.pem", own.key)
    certificate = certificates.write(tmp_path / "certificate.pem", own.certificate)
    address = f"127.0.0.1:{thread.port}"
    security = {
        "bootstrap.servers": address,
        "security.protocol": "ssl",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.key.location": str(key),
        "ssl.certificate.location": str(certificate),
    }
    producer = Producer(security | {"linger.ms": 1})
    for number in range(100):
        producer.produce("letters", b"%d" % number + bytes(5000))
    assert producer.flush(patience(30)) == 0
    assert ("SSL", "User:bob") in principals(thread)
    consumer = confluent_kafka.Consumer(security | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["letters"])
    found: list[int] = []
    while len(found) < 100:
        messages = consumer.consume(100, patience(20))
        assert messages, found
        found += [message.offset() or 0 for message in messages]
    assert found == list(range(100))
    consumer.close()

    async def with_aiokafka() -> bytes | None:
        context = certificates.context_of(tmp_path)
        options = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**options) as writer:
            await writer.send_and_wait("notes", b"hello")
        async with AIOKafkaConsumer("notes", auto_offset_reset="earliest", **options) as reader:
            message = await asyncio.wait_for(reader.getone(), patience(20))
            value: bytes | None = message.value
            return value

    assert asyncio.run(with_aiokafka()) == b"hello"


def test_the_keys_are_in_no_description_of_the_configuration(tmp_path: Path) -> None:
    server = certificates.server()
    inline = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.certificate.chain": server.certificate.replace("\n", " "),
        "ssl.keystore.key": server.key.replace("\n", "\\n"),
    }
    with (
        BrokerThread(tmp_path / "data", inline) as thread,
        TlsClient(thread.port, certificates.context_of(tmp_path)) as client,
    ):
        wanted = [DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)]
        (result,) = client.ask(DescribeConfigsRequest(resources=wanted, include_synonyms=True), 4).results
        rows = {row.name: row for row in result.configs}
        secret = rows["ssl.keystore.key"]
        assert (secret.is_sensitive, secret.value) == (True, None)
        assert {each.value for each in secret.synonyms} == {None}
        assert "PRIVATE KEY" not in repr(result)


def test_certificates_are_read_again_when_their_files_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "FILE_CHECK_SECONDS", 0.0)
    settings = settings_in(tmp_path) | {"ssl.client.auth": "required"}
    alice = certificates.context_of(tmp_path, certificates.client())
    with BrokerThread(tmp_path / "data", settings) as thread:
        with TlsClient(thread.port, alice) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        (tmp_path / "ca.pem").write_text("damaged")  # the former ones stay in use
        with TlsClient(thread.port, alice) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        (tmp_path / "ca.pem").write_text(certificates.other_authority().certificate)  # alice is no longer trusted
        assert is_refused(thread.port, alice)


def test_keys_that_cannot_be_used_are_refused_at_run_time(thread: BrokerThread, tmp_path: Path) -> None:
    other = certificates.other_authority().issue("broker", certificates.HOSTS)

    def alter(client: RawClient, **values: str) -> int:
        configs = [
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in values.items()
        ]
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
        code: int = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code
        return code

    with RawClient(thread.broker.endpoints._bound["PLAINTEXT"].port) as client:
        chain = certificates.server().certificate
        wrong = alter(client, ssl_keystore_certificate_chain=chain, ssl_keystore_key=other.key)
        assert wrong == ErrorCode.INVALID_REQUEST
        assert alter(client, ssl_keystore_location="/nowhere") == ErrorCode.INVALID_REQUEST
        right = alter(client, ssl_keystore_certificate_chain=chain, ssl_keystore_key=certificates.server().key)
        assert right == 0
    with TlsClient(thread.port, certificates.context_of(tmp_path)) as secure:
        assert secure.ask(ApiVersionsRequest(), 0).error_code == 0


def is_refused(port: int, context: ssl.SSLContext) -> bool:
    """Whether the handshake fails. With TLS 1.3 a client learns of it when it reads."""
    try:
        with TlsClient(port, context) as client:
            client.send(ApiVersionsRequest(), 0)
            return client.socket.recv(1) == b""
    except (OSError, ssl.SSLError, ClosedByBrokerError):
        return True


def test_strangers_and_old_versions_are_refused(tmp_path: Path) -> None:
    settings = settings_in(tmp_path) | {"ssl.client.auth": "required", "ssl.enabled.protocols": "TLSv1.3"}
    own = certificates.other_authority().issue("alice")
    with BrokerThread(tmp_path / "data", settings) as thread:
        assert is_refused(thread.port, certificates.context_of(tmp_path))  # without a certificate
        assert is_refused(thread.port, certificates.context_of(tmp_path, own))
        downgraded = certificates.context_of(tmp_path, certificates.client())
        downgraded.maximum_version = ssl.TLSVersion.TLSv1_2
        assert is_refused(thread.port, downgraded)
        with TlsClient(thread.port, certificates.context_of(tmp_path, certificates.client())) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0


def test_handshakes_that_never_end_are_ended_and_do_not_disturb_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 1.0)
    monkeypatch.setattr(tls, "MAX_HANDSHAKES", 30)
    with BrokerThread(tmp_path / "data", settings_in(tmp_path)) as thread:
        silent = [socket.create_connection(("127.0.0.1", thread.port)) for _ in range(20)]
        record = struct.pack(">BHH", 22, 0x0301, 500)  # a record that goes on for ever
        for each in silent[:10]:
            each.sendall(record)
        with socket.create_connection(("127.0.0.1", thread.port)) as plain:
            plain.sendall(b"\0\0\0\x20" + bytes(32))  # no TLS at all
            plain.settimeout(patience(20))
            assert is_ended(plain)
        with TlsClient(thread.port, certificates.context_of(tmp_path)) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        for each in silent:
            each.settimeout(patience(20))
            assert is_ended(each)
            each.close()
        handshakes = thread.broker.endpoints._secure["SSL"].handshakes
        assert handshakes is not None
        until(lambda: thread.look(lambda _: not handshakes._open), "no handshake is left")
        assert handshakes.failed_total == 11  # without those who sent nothing: brokers watch each other in this way
        monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", patience(60))
        more = [socket.create_connection(("127.0.0.1", thread.port)) for _ in range(31)]
        more[0].settimeout(patience(20))
        assert is_ended(more[0])  # the oldest gives way
        with TlsClient(thread.port, certificates.context_of(tmp_path)) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        for each in more:
            each.close()
        until(lambda: thread.look(lambda _: not handshakes._open), "no handshake is left")
        assert handshakes.failed_total == 11  # nor those who sent nothing and left


def is_ended(sock: socket.socket) -> bool:
    try:
        while sock.recv(4096):
            pass
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "SSL://127.0.0.1:0"}, "ssl.keystore.location"),
        ({"listeners": "A://127.0.0.1:0"}, "listener.security.protocol.map"),
        ({"inter.broker.listener.name": "B"}, "inter.broker.listener.name=B"),
        ({"advertised.listeners": "B://a:1"}, "not in listeners"),
        ({"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": "/nowhere"}, "cannot load"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    thread = BrokerThread(tmp_path / "data", settings)
    thread._thread.start()
    with pytest.raises(ConfigError, match=message):
        thread.run(thread.broker.start(None, None))
    thread._loop.call_soon_threadsafe(thread._loop.stop)
    thread._thread.join()
    thread._loop.close()
