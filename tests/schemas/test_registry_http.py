"""The client's connections, against a server that answers as each test says."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from skylog.errors import ConfigError
from skylog.schemas.registry_client import RegistryClient, SchemaNotFoundError, SchemaText
from skylog.schemas.registry_http import RegistryAddress, RegistryError, RegistryHttp, RegistryUnreachableError

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, Any]]


class Server(ThreadingHTTPServer):
    """Notes the connections and requests that it gets."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.connections: set[Any] = set()
        self.requests: list[tuple[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _handle(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.connections.add(self.client_address)
        self.server.requests.append((self.command, self.path))
        status, document = self.server.answer(self)
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = _handle  # noqa: N815
    do_POST = _handle  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def to(*urls: str, user_info: str | None = None) -> RegistryHttp:
    return RegistryHttp(RegistryAddress(urls, user_info), timeout_s=5)


def test_requests_share_a_connection() -> None:
    with serving(lambda _: (200, ["a"])) as server:
        http = to(server.url)
        assert [http.request("GET", "/subjects") for _ in range(3)] == [["a"]] * 3
        assert len(server.connections) == 1


def test_a_connection_that_the_registry_has_closed_is_replaced() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> tuple[int, Any]:
        handler.close_connection = True  # without a word in the headers, as when a registry starts again
        return 200, []

    with serving(answer) as server:
        http = to(server.url)
        assert [http.request("GET", "/subjects") for _ in range(3)] == [[]] * 3
        assert len(server.connections) == 3


def test_the_next_address_is_tried_if_one_is_down_or_cannot_answer_and_stays_in_use() -> None:
    with (
        serving(lambda _: (500, {"error_code": 50003, "message": "no writer"})) as failing,
        serving(lambda _: (200, ["b"])) as good,
    ):
        http = to("http://127.0.0.1:1", failing.url, good.url)
        assert [http.request("GET", "/subjects") for _ in range(2)] == [["b"]] * 2
        assert (len(failing.requests), len(good.requests)) == (1, 2)


def test_if_none_answers_the_error_names_all_and_the_fix() -> None:
    with serving(lambda _: (500, {"error_code": 50003, "message": "no writer"})) as failing:
        with pytest.raises(RegistryUnreachableError, match="skylog registry") as found:
            to("http://127.0.0.1:1", failing.url).request("GET", "/subjects")
        assert "127.0.0.1:1:" in str(found.value)
        assert "no writer" in str(found.value)


@pytest.mark.parametrize("in_url", [True, False])
def test_the_login_is_sent_from_the_url_or_the_setting(in_url: bool) -> None:
    expected = f"Basic {b64encode(b'ann:p@ss').decode()}"
    with serving(lambda handler: (200 if handler.headers["Authorization"] == expected else 401, [])) as server:
        http = to(server.url.replace("//", "//ann:p%40ss@")) if in_url else to(server.url, user_info="ann:p@ss")
        assert http.request("GET", "/subjects") == []
        with pytest.raises(RegistryError, match=r"basic\.auth\.user\.info"):
            to(server.url).request("GET", "/subjects")


def test_a_server_that_is_no_registry_is_named() -> None:
    with (
        serving(lambda _: (200, b"<html>")) as server,
        pytest.raises(RegistryError, match="does not answer like a schema registry"),
    ):
        to(server.url).request("GET", "/subjects")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, r"schema\.registry\.url is missing"),
        ({"schema.registry.url": "127.0.0.1:8081"}, "not an address such as"),
        ({"schema.registry.url": "http://a", "basic.auth.user.inf": "a:b"}, r"did you mean 'basic\.auth\.user\.info'"),
    ],
)
def test_wrong_settings_are_refused_with_the_fix(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        RegistryClient(settings)


def test_a_schema_is_asked_for_once_by_id_and_registered_once() -> None:
    with serving(lambda _: (200, {"schema": '"string"', "id": 3})) as server:
        client = RegistryClient(server.url)
        assert [client.schema_by_id(3) for _ in range(2)] == [SchemaText('"string"')] * 2
        assert [client.register("a b/c", SchemaText('"string"')) for _ in range(2)] == [3, 3]
        assert server.requests == [("GET", "/schemas/ids/3"), ("POST", "/subjects/a%20b%2Fc/versions")]


def test_an_id_that_the_registry_does_not_know_is_asked_for_again() -> None:
    with serving(lambda _: (404, {"error_code": 40403, "message": "Schema 3 not found"})) as server:
        client = RegistryClient(server.url)
        for _ in range(2):
            with pytest.raises(SchemaNotFoundError, match="Schema 3 not found"):
                client.schema_by_id(3)
        assert len(server.requests) == 2
