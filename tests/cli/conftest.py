"""A broker for the session, and the command line as a process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from skylog.cli.produce.input_format import JsonFormat
from skylog.client import Admin, Connection, PartitionReader
from skylog.message_document import as_object
from tests.cli.commands import TERMINAL, run_skylog

SKYLOG = Path(sys.executable).with_name("skylog")
STARTED = "listening on "
_numbers = itertools.count()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another process fulfils."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@contextlib.contextmanager
def running_broker(data_dir: Path, *options: str) -> Iterator[str]:
    """Run `skylog serve` on a free port, and stop it cleanly at the end. Yields its address."""
    command = [
        str(SKYLOG),
        "serve",
        "--data-dir",
        str(data_dir),
        "--port",
        "0",
        "--log-level",
        "warning",
        "--no-console",
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(STARTED), f"skylog serve printed {line!r}"
        try:
            yield line.removeprefix(STARTED).strip()
        finally:
            process.terminate()
            process.wait(30)


@dataclass(frozen=True)
class Skylog:
    """Runs commands against one broker."""

    bootstrap: str

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **TERMINAL, "SKYLOG_BOOTSTRAP": self.bootstrap}

    def __call__(self, *arguments: object, stdin: str | bytes = b"", code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command and check its exit code."""
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        result = run_skylog(*arguments, stdin=given, variables={"SKYLOG_BOOTSTRAP": self.bootstrap})
        assert result.returncode == code, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        assert "Traceback" not in result.stderr, result.stderr
        return result

    def json(self, *arguments: object) -> Any:
        return json.loads(self(*arguments).stdout)

    def json_lines(self, *arguments: object) -> list[Any]:
        return [json.loads(line) for line in self(*arguments).stdout.splitlines()]

    @contextlib.contextmanager
    def start(self, *arguments: object, **options: Any) -> Iterator[subprocess.Popen[Any]]:
        """Run a command in the background, and kill it at the end."""
        with subprocess.Popen([SKYLOG, *map(str, arguments)], env=self.environment, **options) as process:
            try:
                yield process
            finally:
                process.kill()

    # -- setup for tests, without a process for each call

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        configs = {key.replace("_", "."): value for key, value in configs.items()}
        Admin(Connection(self.bootstrap)).create_topic(topic, partitions, configs=configs)

    def send(self, topic: str, *messages: Mapping[str, object], **settings: object) -> None:
        """Send messages in the format of `produce --json-input`."""
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for message in messages:
            producer.produce(topic, **JsonFormat({}).parse(json.dumps(message).encode()))
        assert producer.flush(20) == 0

    def read(self, topic: str) -> list[dict[str, Any]]:
        """All messages of a topic, in the format of `tail --json`."""
        connection = Connection(self.bootstrap)
        admin = Admin(connection)
        ranges = admin.offset_ranges(admin.describe_topic(topic).topic_partitions)
        reader = PartitionReader(connection, {key: offsets.start_offset for key, offsets in ranges.items()})
        try:
            return [as_object(message) for messages in reader.read_to_end(ranges) for message in messages]
        finally:
            reader.close()

    def topics(self) -> set[str]:
        return {topic.name for topic in Admin(Connection(self.bootstrap)).list_topics()}


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli") / "data"


@pytest.fixture(scope="session")
def bootstrap(data_dir: Path) -> Iterator[str]:
    with running_broker(data_dir) as address:
        yield address


@pytest.fixture(scope="session")
def skylog(bootstrap: str) -> Skylog:
    return Skylog(bootstrap)


@pytest.fixture
def topic() -> str:
    """An unused name."""
    return f"topic{next(_numbers)}"
