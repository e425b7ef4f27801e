"""A registry as a process, and a client for its API."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx

from skylog.testing.command import Command, start_command
from skylog.testing.waiting import wait_until

ANNOUNCED = "registry at "
AVRO_INT = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
STOP_S = 30


class RegistryProcess:
    """`skylog registry` on a free port, which is kept when it is started again."""

    def __init__(self, bootstrap: str, *options: str, port: int = 0) -> None:
        self._bootstrap, self._options, self.port = bootstrap, options, port
        self._home = tempfile.TemporaryDirectory(prefix="skylog-registry-")
        self._process: Command | None = None

    def start(self) -> Self:
        arguments = ["registry", "--bootstrap", self._bootstrap, "--port", str(self.port), "--log-level", "info"]
        with open(Path(self._home.name) / "stderr", "a") as stderr:
            self._process = start_command([*arguments, *self._options], stderr.fileno())
        line = self._process.stdout.readline()
        assert line.startswith(ANNOUNCED), self.stderr()
        self.port = int(line.rpartition(":")[2])
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stderr(self) -> str:
        return (Path(self._home.name) / "stderr").read_text()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        assert self._process is not None
        self.signal(signal.SIGKILL)
        self._process.wait(STOP_S)
        self._process.close_pipes()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self.signal(signal.SIGCONT)
            code = self._process.wait(STOP_S)
            assert code == 0, f"exit code {code}: {self.stderr()}"
            self._process.close_pipes()
            self._process = None


@contextmanager
def running_registry(bootstrap: str, *options: str) -> Iterator[RegistryProcess]:
    registry = RegistryProcess(bootstrap, *options).start()
    try:
        yield registry
    finally:
        registry.stop()


class Api:
    """Calls the REST API. A call returns the document; `fails` the error code."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.client = httpx.Client(base_url=url, timeout=60, **settings)

    def get(self, path: str) -> Any:
        return self._ok("GET", path)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._ok("PUT", path, body)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._ok("POST", path, body)

    def delete(self, path: str) -> Any:
        return self._ok("DELETE", path)

    def register(self, subject: str, schema: str = AVRO_INT, **more: Any) -> int:
        document = self.post(f"/subjects/{subject}/versions", {"schema": schema, **more})
        return int(document["id"])

    def fails(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> int:
        response = self.client.request(method, path, json=body)
        assert response.status_code >= 400, response.text
        document = response.json()
        assert document["error_code"] // 100 == response.status_code or document["error_code"] == response.status_code
        assert document["message"]
        return int(document["error_code"])

    def _ok(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        response = self.client.request(method, path, json=body)
        assert response.status_code == 200, (method, path, response.text)
        assert response.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
        return response.json()

    @property
    def is_writer(self) -> bool:
        return bool(self.client.get("/health").json()["is_writer"])


def wait_for_writer(*apis: Api) -> Api:
    """Wait until one of these registries is elected, and return it."""
    wait_until(lambda: any(each.is_writer for each in apis), "an elected registry")
    return next(each for each in apis if each.is_writer)
