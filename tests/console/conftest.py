"""A broker and a console, in two processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Protocol

import httpx
import pytest

from skylog.testing import BrokerProcess

START_PATIENCE_S = 30


class Bootstrapped(Protocol):
    """A broker of any kind."""

    @property
    def bootstrap(self) -> str: ...


@dataclass(frozen=True)
class RunningConsole:
    url: str
    client: httpx.Client
    broker: Bootstrapped
    process: subprocess.Popen[str]

    def get(self, path: str, **settings: object) -> httpx.Response:
        return self.client.get(path, **settings)  # type: ignore[arg-type]

    def json(self, path: str) -> dict[str, object]:
        """The document of a page. Fails on anything but 200."""
        response = self.client.get(path, headers={"accept": "application/json"})
        assert response.status_code == 200, response.text
        document: dict[str, object] = response.json()
        return document

    def post(self, path: str, **fields: object) -> httpx.Response:
        """A form, as a browser sends it from a page of the console."""
        headers = {"origin": self.url, "sec-fetch-site": "same-origin", "accept": "text/html"}
        return self.client.post(path, data=fields, headers=headers)


@contextmanager
def running_console(
    broker: Bootstrapped, *options: str, environment: dict[str, str] | None = None
) -> Iterator[RunningConsole]:
    """`skylog console` against a broker, on a free port."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "skylog",
        "console",
        "--bootstrap",
        broker.bootstrap,
        "--port",
        "0",
        *options,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    assert process.stderr is not None
    try:
        url = _announced_url(process.stderr)
        with httpx.Client(base_url=url, timeout=30) as client:
            _wait_until_it_answers(client)
            yield RunningConsole(url, client, broker, process)
    finally:
        process.terminate()
        process.communicate(timeout=START_PATIENCE_S)


def _announced_url(stderr: IO[str]) -> str:
    for line in stderr:
        if line.startswith("console at "):
            return line.split()[2]
    raise AssertionError("the console ended before it printed its address")


def _wait_until_it_answers(client: httpx.Client) -> None:
    deadline = time.monotonic() + START_PATIENCE_S
    while True:
        try:
            client.get("/health")
            return
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(settings={"log.retention.ms": "-1"}) as broker:
        yield broker


@pytest.fixture(scope="session")
def console(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with running_console(broker) as running:
        yield running


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names of topics that no other test has."""
    numbers = iter(range(1000))
    base = request.node.name.partition("[")[0][:80]
    return lambda: f"{base}-{next(numbers)}"
