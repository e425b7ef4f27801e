"""Logins: every mechanism, what is served before one, repetition, expiry, and attacks."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from skylog.broker.handlers import APIS
from skylog.broker.security import login as login_module
from skylog.errors import ErrorCode
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.apis import API_SPECS, ApiKey
from skylog.protocol.metadata import MetadataRequest
from skylog.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from skylog.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from skylog.security.scram import Credential, Mechanism, ScramLogin
from tests.patience import patience
from tests.security import certificates

from .process import BrokerThread, until
from .raw import ClosedByBrokerError, RawClient
from .test_tls import settings_in

KEY = ECKey.generate_key("P-256", {"kid": "k"})
PLAIN_USERS = 'x.PlainLoginModule required user_bob="bob-secret" user_eve="eve-secret";'
LISTENERS = {
    "listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl.jaas.config": PLAIN_USERS,
    "sasl.oauthbearer.expected.audience": "kafka",
    "connection.failed.authentication.delay.ms": "10",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sasl")


def settings_of(folder: Path) -> dict[str, str]:
    (folder / "keys.json").write_bytes(orjson.dumps(KeySet([KEY]).as_dict(private=False)))
    return settings_in(folder) | LISTENERS | {"sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/keys.json"}


@pytest.fixture(scope="module")
def thread(folder: Path) -> Iterator[BrokerThread]:
    with BrokerThread(folder / "data", settings_of(folder)) as running:
        add_user(running, "alice", "alice-secret")
        yield running


def add_user(thread: BrokerThread, name: str, password: str) -> None:
    stored = {each.wire_name: Credential.of_password(each, password).to_value() for each in Mechanism}
    thread.run(thread.broker.users.change(name, lambda _: stored))


def port_of(thread: BrokerThread, listener: str) -> int:
    return thread.broker.endpoints._bound[listener].port


@pytest.fixture
def client(thread: BrokerThread) -> Iterator[RawClient]:
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as connection:
        yield connection


def handshake(client: RawClient, mechanism: str) -> SaslHandshakeResponse:
    response: SaslHandshakeResponse = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    return response


def send_token(client: RawClient, token: bytes) -> SaslAuthenticateResponse:
    response: SaslAuthenticateResponse = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
    return response


def log_in(client: RawClient, user: str = "alice", password: str = "alice-secret") -> SaslAuthenticateResponse:
    assert handshake(client, "SCRAM-SHA-512").error_code == 0
    exchange = ScramLogin(Mechanism.SCRAM_SHA_512, user, password)
    first = send_token(client, exchange.first())
    assert first.error_code == 0
    return send_token(client, exchange.final(first.auth_bytes))


def log_in_plainly(client: RawClient, user: str = "bob", password: str = "bob-secret") -> SaslAuthenticateResponse:
    assert handshake(client, "PLAIN").error_code == 0
    return send_token(client, f"\0{user}\0{password}".encode())


def bearer(**claims: object) -> bytes:
    all_claims = {"sub": "carol", "exp": time.time() + 600, "aud": "kafka"} | claims
    token = jwt.encode({"alg": "ES256", "kid": "k"}, all_claims, KEY)
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"


def is_served(client: RawClient) -> bool:
    try:
        return bool(client.ask(MetadataRequest(topics=[]), 9).brokers)
    except ClosedByBrokerError:
        return False


def test_a_user_who_logs_in_is_served(client: RawClient) -> None:
    assert log_in(client).error_code == 0
    assert is_served(client)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_nothing_but_the_login_is_served_before_it(thread: BrokerThread, api: object) -> None:
    key = api.key  # type: ignore[attr-defined]
    if key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        return
    version = API_SPECS[key].versions.high
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff\0\0\0\0\0\0\0\0"
        client.send_bytes(len(header).to_bytes(4, "big") + header)
        assert client.is_closed()


def test_every_mechanism_is_offered_and_others_are_not(client: RawClient) -> None:
    response = handshake(client, "GSSAPI")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    assert log_in_plainly(client).error_code == 0
    assert is_served(client)


def test_a_wrong_password_is_answered_and_the_connection_closed(client: RawClient) -> None:
    response = log_in(client, password="wrong")
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_a_token_without_a_handshake_is_refused(client: RawClient) -> None:
    assert send_token(client, b"\0bob\0bob-secret").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed()


def test_requests_behind_a_failed_login_are_not_served(client: RawClient) -> None:
    frames = [
        client.encode(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        client.encode(SaslAuthenticateRequest(auth_bytes=b"\0bob\0wrong"), 2),
        client.encode(MetadataRequest(topics=None), 9),
    ]
    client.send_bytes(b"".join(frames))
    assert client.receive().error_code == 0
    assert client.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ClosedByBrokerError):
        client.receive()


def test_a_large_frame_before_the_login_is_refused_before_it_is_received(client: RawClient) -> None:
    client.send_bytes((600_000).to_bytes(4, "big") + b"\0\x24\0\2")
    assert client.is_closed()


def test_a_login_may_be_repeated_by_the_same_user_only(client: RawClient) -> None:
    assert log_in_plainly(client).error_code == 0
    assert log_in_plainly(client).error_code == 0
    assert is_served(client)
    assert handshake(client, "SCRAM-SHA-256").error_code == ErrorCode.ILLEGAL_SASL_STATE
    response = log_in_plainly(client, "eve", "eve-secret")
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_requests_behind_a_failed_repetition_are_not_served(client: RawClient) -> None:
    assert log_in_plainly(client).error_code == 0
    frames = [
        client.encode(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        client.encode(SaslAuthenticateRequest(auth_bytes=b"\0bob\0wrong"), 2),
        client.encode(ApiVersionsRequest(), 0),  # answered at once
    ]
    client.send_bytes(b"".join(frames))
    assert client.receive().error_code == 0
    assert client.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ClosedByBrokerError):
        client.receive()


def test_tokens_without_headers_follow_the_first_version_of_the_handshake(thread: BrokerThread) -> None:
    def begin(client: RawClient, mechanism: str) -> None:
        assert client.ask(SaslHandshakeRequest(mechanism=mechanism), 0).error_code == 0

    def exchange(client: RawClient, token: bytes) -> bytes:
        client.send_bytes(len(token).to_bytes(4, "big") + token)
        return client.read_frame()

    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as client:
        begin(client, "SCRAM-SHA-256")
        login = ScramLogin(Mechanism.SCRAM_SHA_256, "alice", "alice-secret")
        login.verify(exchange(client, login.final(exchange(client, login.first()))))
        assert is_served(client)
        assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0).error_code != 0
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as client:
        begin(client, "PLAIN")
        assert exchange(client, b"\0bob\0bob-secret") == b""
        assert is_served(client)
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as client:
        begin(client, "PLAIN")
        token = b"\0bob\0wrong"
        behind = client.encode(MetadataRequest(topics=[]), 9)
        client.send_bytes(len(token).to_bytes(4, "big") + token + behind)
        with pytest.raises(ClosedByBrokerError):
            client.read_frame()


def test_a_token_identifies_a_user_until_it_expires(client: RawClient) -> None:
    assert handshake(client, "OAUTHBEARER").error_code == 0
    response = send_token(client, bearer())
    assert response.error_code == 0
    assert 590_000 < response.session_lifetime_ms <= 600_000
    assert is_served(client)


@pytest.mark.parametrize("claims", [{"exp": 1.0}, {"aud": "billing"}], ids=["expired", "for another audience"])
def test_a_token_that_is_not_right_is_refused(client: RawClient, claims: dict[str, object]) -> None:
    assert handshake(client, "OAUTHBEARER").error_code == 0
    assert send_token(client, bearer(**claims)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_listeners_without_logins_have_none(thread: BrokerThread) -> None:
    with RawClient(port_of(thread, "PLAINTEXT")) as client:
        assert handshake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert send_token(client, b"\0bob\0bob-secret").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(client)


def test_a_session_that_is_not_renewed_ends(tmp_path: Path) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "connections.max.reauth.ms": "3000",
    }
    with BrokerThread(tmp_path / "data", settings) as thread, RawClient(thread.port) as client:
        assert log_in_plainly(client).session_lifetime_ms == 3000
        began = time.monotonic()
        assert client.is_closed(patience(20))  # though it sends nothing
        assert time.monotonic() - began > 1


def test_a_client_that_never_logs_in_is_closed(
    thread: BrokerThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(login_module, "LOGIN_SECONDS", 0.2)
    monkeypatch.setattr(login_module, "limited_logger", logging.getLogger("without a limit"))
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as client:
        assert client.is_closed(patience(20))
    assert "has not logged in" not in caplog.text  # it sent nothing: brokers watch each other in this way
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as client:
        client.send(ApiVersionsRequest(), 0)
        assert client.is_closed(patience(20))
    assert "has not logged in" in caplog.text


def test_many_wrong_passwords_do_not_keep_others_from_working(thread: BrokerThread, client: RawClient) -> None:
    stop = threading.Event()
    refused = [0, 0]

    def guess(number: int) -> None:
        while not stop.is_set():
            with RawClient(port_of(thread, "SASL_PLAINTEXT")) as attacker:
                attempt = log_in_plainly if number else log_in
                assert attempt(attacker, password="guess").error_code != 0
                refused[number] += 1

    attackers = [threading.Thread(target=guess, args=(number,)) for number in range(2)]
    for each in attackers:
        each.start()
    try:
        assert log_in(client).error_code == 0
        for _ in range(50):
            assert is_served(client)
        until(lambda: min(refused) > 5, "guesses are refused", patience(20))
        assert is_served(client)
    finally:
        stop.set()
        for each in attackers:
            each.join()


def test_librdkafka_and_aiokafka_log_in_over_tls(thread: BrokerThread, folder: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{thread.port}"
    security = {
        "bootstrap.servers": address,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    producer = Producer(security)
    producer.produce("letters", b"hello")
    assert producer.flush(patience(30)) == 0
    consumer = confluent_kafka.Consumer(security | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["letters"])
    message = consumer.poll(patience(30))
    assert message is not None
    assert message.value() == b"hello"
    consumer.close()

    async def with_aiokafka() -> bytes | None:
        options = {
            "bootstrap_servers": address,
            "security_protocol": "SASL_SSL",
            "ssl_context": certificates.context_of(tmp_path),
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "alice-secret",
        }
        async with AIOKafkaProducer(**options) as writer:
            await writer.send_and_wait("notes", b"note")
        async with AIOKafkaConsumer("notes", auto_offset_reset="earliest", **options) as reader:
            value: bytes | None = (await asyncio.wait_for(reader.getone(), patience(20))).value
            return value

    assert asyncio.run(with_aiokafka()) == b"note"


def describe(admin: AdminClient, user: str) -> Any:
    found: Any = admin.describe_user_scram_credentials([user])
    return found[user].result(patience(20))


def test_users_are_administered_by_clients(thread: BrokerThread, client: RawClient) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port_of(thread, 'PLAINTEXT')}"})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    change = UserScramCredentialUpsertion("dora", info, b"dora-secret")
    for future in admin.alter_user_scram_credentials([change]).values():
        assert future.result(patience(20)) is None
    described = describe(admin, "dora")
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_512, 8192)
    assert log_in(client, "dora", "dora-secret").error_code == 0
    deletion = UserScramCredentialDeletion("dora", ScramMechanism.SCRAM_SHA_512)
    for future in admin.alter_user_scram_credentials([deletion]).values():
        assert future.result(patience(20)) is None
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as later:
        assert log_in(later, "dora", "dora-secret").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        describe(admin, "dora")
    assert raised.value.args[0].code() == ErrorCode.RESOURCE_NOT_FOUND
    for future in admin.alter_user_scram_credentials([deletion]).values():
        with pytest.raises(confluent_kafka.KafkaException):
            future.result(patience(20))
    weak = UserScramCredentialUpsertion("eve", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), b"x")
    for future in admin.alter_user_scram_credentials([weak]).values():
        with pytest.raises(confluent_kafka.KafkaException, match="iterations"):
            future.result(patience(20))
