"""The proxy in front of a broker: what passes, what waits, and whose connections it cuts."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from skylog.client import Admin, Connection
from skylog.testing import BrokerProcess, consume, produce, wait_until
from skylog.testing.loop_thread import LoopThread
from skylog.testing.proxy import BrokerProxy, find_client_id

PATIENCE_S = 20.0
MOMENT_S = 0.1


@pytest.fixture(scope="module")
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("proxies")
    yield thread
    thread.close()


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    """A socket that listens as a broker does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        yield listening


@pytest.fixture
def proxy(thread: LoopThread, broker: socket.socket) -> Iterator[BrokerProxy]:
    proxy = BrokerProxy(thread)
    proxy.forward_to(broker.getsockname()[1])
    yield proxy
    proxy.close()


def first_request(client_id: str | None, size: int = 100) -> bytes:
    """The head of a Kafka request, and some bytes more."""
    name = b"" if client_id is None else client_id.encode()
    header = struct.pack(">ihhih", size, 18, 3, 0, -1 if client_id is None else len(name))
    return (header + name).ljust(size + 4, b".")


def connect(proxy: BrokerProxy, client_id: str | None = "app") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
    client.sendall(first_request(client_id))
    return client


def accept(broker: socket.socket, client_id: str | None = "app") -> socket.socket:
    accepted, _ = broker.accept()
    accepted.settimeout(PATIENCE_S)
    assert receive(accepted, 104) == first_request(client_id)
    return accepted


@contextlib.contextmanager
def connected(
    proxy: BrokerProxy, broker: socket.socket, client_id: str = "app"
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection through the proxy."""
    with connect(proxy, client_id) as client, accept(broker, client_id) as accepted:
        yield client, accepted


def receive(end: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size and (data := end.recv(size - len(received))):
        received += data
    return received


def is_closed(end: socket.socket) -> bool:
    """Whether the other side closes or resets the connection in time."""
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def is_silent(end: socket.socket) -> bool:
    """Whether nothing arrives, not even an end, for a moment."""
    end.settimeout(MOMENT_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(PATIENCE_S)
    return False


def test_the_client_id_is_found_as_soon_as_it_is_received() -> None:
    request = first_request("broker-2")
    found = [find_client_id(request[:size]) for size in range(len(request) + 1)]
    assert found == [None] * 22 + ["broker-2"] * (len(request) - 21)
    assert find_client_id(first_request(None)) == ""
    assert find_client_id(b"\xff" * 20) == ""


def test_clients_talk_to_a_broker_through_its_proxy_and_find_it_again_after_a_cut(thread: LoopThread) -> None:
    proxy = BrokerProxy(thread)
    with BrokerProcess(settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as process:
        proxy.forward_to(process.port)
        bootstrap = f"127.0.0.1:{proxy.port}"
        produce(bootstrap, "letters", ["a", "b" * 500_000])
        assert [len(message.value or b"") for message in consume(bootstrap, "letters", 2)] == [1, 500_000]
        admin = Admin(Connection(bootstrap))
        admin.list_topics()
        proxy.cut()
        proxy.heal()
        wait_until(lambda: "letters" in [topic.name for topic in admin.list_topics()], "the client to reconnect")
    proxy.close()


def test_everything_passes_in_both_directions(proxy: BrokerProxy, broker: socket.socket) -> None:
    with connected(proxy, broker) as (client, accepted):
        for sender, receiver in ((client, accepted), (accepted, client)):
            for text in (b"hello", bytes(range(256)) * 400):
                sender.sendall(text)
                assert receive(receiver, len(text)) == text


def test_a_request_may_arrive_in_pieces(proxy: BrokerProxy, broker: socket.socket) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in first_request("app"):
            client.sendall(bytes([byte]))
        with accept(broker):
            pass
        assert is_closed(client)


def test_a_connection_waits_until_the_port_of_the_broker_is_known(thread: LoopThread, broker: socket.socket) -> None:
    proxy = BrokerProxy(thread)
    with connect(proxy) as client:
        assert is_silent(client)
        proxy.forward_to(broker.getsockname()[1])
        with accept(broker):
            pass
    proxy.close()


def test_a_sender_waits_for_a_receiver_that_does_not_read(proxy: BrokerProxy, broker: socket.socket) -> None:
    with connected(proxy, broker) as (client, accepted):
        for sender, receiver in ((client, accepted), (accepted, client)):
            sender.settimeout(MOMENT_S)
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 256 << 20:
                    sent += sender.send(b"x" * (1 << 20))
            assert 0 < sent < 64 << 20
            assert len(receive(receiver, sent)) == sent
            sender.settimeout(PATIENCE_S)
            sender.sendall(b"again")
            assert receive(receiver, 5) == b"again"


@pytest.mark.parametrize("closing", ["client", "broker"])
def test_what_was_sent_before_a_close_arrives(proxy: BrokerProxy, broker: socket.socket, closing: str) -> None:
    with connected(proxy, broker) as (client, accepted):
        leaving, staying = (client, accepted) if closing == "client" else (accepted, client)
        leaving.sendall(b"x" * 100_000)
        leaving.close()
        assert receive(staying, 100_001) == b"x" * 100_000


def test_a_broker_that_does_not_listen_is_a_closed_connection(proxy: BrokerProxy, broker: socket.socket) -> None:
    broker.close()
    with connect(proxy) as client:
        assert is_closed(client)


def test_a_cut_resets_connections_and_refuses_further_ones(proxy: BrokerProxy, broker: socket.socket) -> None:
    with connected(proxy, broker) as (client, accepted):
        proxy.cut()
        assert is_closed(client)
        assert is_closed(accepted)
    with connect(proxy) as client:
        assert is_closed(client)
    proxy.heal()
    with connected(proxy, broker) as (client, accepted):
        client.sendall(b"hello")
        assert receive(accepted, 5) == b"hello"


def test_a_silent_cut_holds_everything_until_it_is_healed(proxy: BrokerProxy, broker: socket.socket) -> None:
    with connected(proxy, broker) as (client, accepted):
        proxy.cut(silently=True)
        client.sendall(b"request")
        accepted.sendall(b"response")
        assert is_silent(accepted)
        assert is_silent(client)
        with connect(proxy, "late") as late:
            assert is_silent(late)
            proxy.heal()
            assert receive(accepted, 7) == b"request"
            assert receive(client, 8) == b"response"
            with accept(broker, "late") as accepted_late:
                accepted_late.sendall(b"welcome")
                assert receive(late, 7) == b"welcome"


def test_a_close_during_a_silent_cut_is_seen_afterwards(proxy: BrokerProxy, broker: socket.socket) -> None:
    with connected(proxy, broker) as (client, accepted):
        proxy.cut(silently=True)
        client.sendall(b"last")
        client.close()
        assert is_silent(accepted)
        proxy.heal()
        assert receive(accepted, 5) == b"last"


@pytest.mark.parametrize("silently", [False, True])
def test_a_cut_may_concern_one_client(proxy: BrokerProxy, broker: socket.socket, silently: bool) -> None:
    is_cut = is_silent if silently else is_closed
    with connected(proxy, broker, "broker-2") as (other, other_accepted):
        with connected(proxy, broker, "broker-1") as (client, accepted):
            proxy.cut("broker-1", silently=silently)
            with contextlib.suppress(ConnectionError):  # it has been reset
                accepted.sendall(b"x")
            assert is_cut(client)
            with connect(proxy, "broker-1") as late:
                assert is_cut(late)
        other.sendall(b"hello")
        assert receive(other_accepted, 5) == b"hello"
        with connected(proxy, broker, "broker-11"):
            pass


def test_cuts_of_one_client_and_of_all_are_healed_separately(proxy: BrokerProxy, broker: socket.socket) -> None:
    with connected(proxy, broker, "broker-1") as (client, accepted):
        proxy.cut("broker-1", silently=True)
        proxy.cut(silently=True)
        client.sendall(b"x")
        proxy.heal()
        assert is_silent(accepted)
        proxy.heal("broker-1")
        assert receive(accepted, 1) == b"x"
