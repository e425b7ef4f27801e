"""Attacks on TLS and logins over the wire: what is cut off, replayed, or taken from another user or another time."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.security.scram import Mechanism, ScramLogin
from tests.patience import patience
from tests.security import certificates

from .process import BrokerThread, until
from .raw import RawClient
from .test_sasl import add_user, bearer, handshake, is_served, log_in, port_of, send_token, settings_of
from .test_tls import TlsClient, is_refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacks")


@pytest.fixture(scope="module")
def thread(folder: Path) -> Iterator[BrokerThread]:
    with BrokerThread(folder / "data", settings_of(folder)) as running:
        add_user(running, "alice", "alice-secret")
        add_user(running, "mallory", "mallory-secret")
        yield running


@pytest.fixture
def client(thread: BrokerThread) -> Iterator[RawClient]:
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as connection:
        yield connection


def client_hello() -> bytes:
    """The first message of a handshake, as a client sends it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=certificates.authority().certificate)
    half = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    return outgoing.read()


def test_a_handshake_that_is_cut_off_anywhere_ends_alone(thread: BrokerThread, tmp_path: Path) -> None:
    hello = client_hello()
    handshakes = thread.broker.endpoints._secure["SASL_SSL"].handshakes
    assert handshakes is not None
    for length in (1, 4, 5, 6, 40, len(hello) // 2, len(hello) - 1):
        with socket.create_connection(("127.0.0.1", thread.port)) as cut:
            cut.sendall(hello[:length])
            cut.shutdown(socket.SHUT_WR)
            cut.settimeout(patience(20))
            assert cut.recv(100)[:1] in (b"", b"\x15")  # the end, or an alert before it
    until(lambda: thread.look(lambda _: not handshakes._open), "no handshake is left")
    with TlsClient(thread.port, certificates.context_of(tmp_path)) as other:
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=lambda each: each.name)
def test_versions_of_tls_that_are_broken_are_refused(thread: BrokerThread, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")  # so that this side offers them
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        context.minimum_version = context.maximum_version = version
    assert is_refused(thread.port, context)


def test_a_recorded_login_is_of_no_use_on_another_connection(thread: BrokerThread, client: RawClient) -> None:
    assert handshake(client, "SCRAM-SHA-512").error_code == 0
    login = ScramLogin(Mechanism.SCRAM_SHA_512, "alice", "alice-secret")
    first = login.first()
    final = login.final(send_token(client, first).auth_bytes)
    assert send_token(client, final).error_code == 0
    with RawClient(port_of(thread, "SASL_PLAINTEXT")) as replay:
        assert handshake(replay, "SCRAM-SHA-512").error_code == 0
        assert send_token(replay, first).error_code == 0
        assert send_token(replay, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert replay.is_closed()
    assert send_token(client, final).error_code == ErrorCode.ILLEGAL_SASL_STATE  # nor on the same one, later


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_nobody_becomes_another_user_by_logging_in_again(client: RawClient, mechanism: str) -> None:
    if mechanism == "OAUTHBEARER":
        for subject, code in (("carol", 0), ("carol", 0), ("mallory", ErrorCode.SASL_AUTHENTICATION_FAILED)):
            assert handshake(client, mechanism).error_code == 0
            assert send_token(client, bearer(sub=subject)).error_code == code
    else:
        assert log_in(client).error_code == log_in(client).error_code == 0
        again = log_in(client, "mallory", "mallory-secret")
        assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_a_session_ends_with_the_token_it_was_begun_with(client: RawClient) -> None:
    assert handshake(client, "OAUTHBEARER").error_code == 0
    response = send_token(client, bearer(exp=time.time() + 3))
    assert 0 < response.session_lifetime_ms <= 3000
    assert is_served(client)
    assert client.is_closed(patience(20))  # though it sends nothing


def test_a_user_who_is_removed_cannot_log_in_again(thread: BrokerThread, client: RawClient) -> None:
    add_user(thread, "leaver", "leaver-secret")
    assert log_in(client, "leaver", "leaver-secret").error_code == 0
    thread.run(thread.broker.users.change("leaver", lambda _: {}))
    assert log_in(client, "leaver", "leaver-secret").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_nobody_learns_which_users_there_are(thread: BrokerThread) -> None:
    """Also not with two mechanisms, and a user as librdkafka adds it."""

    def challenge(name: str, mechanism: str) -> tuple[int, str]:
        with RawClient(port_of(thread, "SASL_PLAINTEXT")) as connection:
            assert handshake(connection, mechanism).error_code == 0
            answer = send_token(connection, f"n,,n={name},r=x".encode()).auth_bytes.decode()
        salt, iterations = answer.partition(",s=")[2].split(",i=")
        salts.add(salt)
        return len(salt), iterations

    salts: set[str] = set()
    names = ("alice", "mallory", "nobody", "somebody")
    kinds = {challenge(name, each) for name in names for each in ("SCRAM-SHA-256", "SCRAM-SHA-512") for _ in range(2)}
    assert len(kinds) == 1
    assert len(salts) == 8
