"""docs/tutorial.md, followed by a reader: every block in order, in an empty folder, with real processes.

A block with a file's name as its title is saved, a block of commands is run, and a block of text or JSON is compared
with the output of the command before it. Three things differ from the page: ports are free ones, the broker has no
console, and packages are not installed but must be there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement

from skylog.testing import consume, wait_until

pytest.importorskip("pyspark", reason="the tutorial uses Spark: pip install -e '.[spark]'")
pytest.importorskip("matplotlib", reason="the tutorial draws a chart: pip install matplotlib")

ROOT = Path(__file__).parents[1]
SERVERS = {  # how they are started on a free port, and what they print once they listen there
    "skylog serve": ("--port 0 --no-console", r"listening on 127\.0\.0\.1:(\d+)"),
    "flask": ("--port 0", r"Running on http://127\.0\.0\.1:(\d+)"),
}


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks() -> list[Block]:
    found = re.findall(
        r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$',
        (ROOT / "docs" / "tutorial.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return [Block(*each) for each in found]


class Reader:
    """Follows the tutorial in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = ""
        self.ports: dict[str, str] = {}
        self.environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self._servers: list[subprocess.Popen[bytes]] = []

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self._with_ports(text))

    def type(self, command: str) -> None:
        kind = next((kind for kind in SERVERS if command.startswith(kind)), None)
        if kind is None:
            self._run(self._with_ports(command))
        else:
            self._serve(kind, command)

    def _run(self, command: str) -> None:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        self.output = done.stdout or done.stderr

    def _serve(self, kind: str, command: str) -> None:
        options, ready = SERVERS[kind]
        log = self.folder / f"{len(self._servers)}.log"
        page_port = re.search(r" --port (\d+)", command)
        command = f"exec {command.replace(page_port[0], '') if page_port else command} {options}"
        with log.open("wb") as output:
            self._servers.append(
                subprocess.Popen(
                    ["bash", "-c", command],
                    cwd=self.folder,
                    env=self.environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        (port,) = wait_until(lambda: re.findall(ready, log.read_text()), f"{command}: {log}", seconds=60)
        self.ports[page_port[1] if page_port else "9092"] = port
        if kind == "skylog serve":
            self.environment["SKYLOG_BOOTSTRAP"] = f"127.0.0.1:{port}"

    def _with_ports(self, text: str) -> str:
        for shown, actual in self.ports.items():
            text = text.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{actual}")
        return text

    def stop_servers(self) -> list[int]:
        """Press Ctrl-C in every terminal; return the exit codes."""
        for server in reversed(self._servers):
            server.send_signal(signal.SIGINT)
        return [server.wait(60) for server in self._servers]

    def close(self) -> None:
        for server in self._servers:
            server.kill()
            server.wait()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    yield found
    found.close()


@pytest.mark.timeout(900)  # it starts two JVMs
def test_every_block_of_the_tutorial_works_in_order(reader: Reader) -> None:
    for block in blocks():
        if block.language == "python":
            reader.save(block.title, block.text)
        elif block.language == "sh" and not block.title:
            check_packages(block.text)
        elif block.language == "sh":
            for command in block.text.splitlines():
                reader.type(command)
            if "readers.py" in block.text:
                consume(reader.environment["SKYLOG_BOOTSTRAP"], "blog_log", 300, timeout_s=30)
        elif block.language == "json":
            check_event(json.loads(reader.output), json.loads(block.text))
        else:
            assert without_times(reader.output).endswith(without_times(block.text))  # Spark logs before it
    assert (reader.folder / "views.png").read_bytes().startswith(b"\x89PNG")
    assert reader.stop_servers()[0] == 0


def test_the_tutorial_has_all_its_parts() -> None:
    saved = [block.title for block in blocks() if block.language == "python"]
    assert saved == ["blog.py", "readers.py", "popular.py", "chart.py"]
    typed = "".join(block.text for block in blocks() if block.language == "sh")
    assert all(f"python {name}" in typed for name in saved[1:])
    fences = re.findall(r"^```", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks())


def check_packages(commands: str) -> None:
    """Whether `pip install` names packages that are there, and extras that skylog has."""
    install = next(shlex.split(line) for line in commands.splitlines() if line.startswith("pip install "))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = [Requirement(text) for text in install[2:]]
    for requirement in list(needed):
        if requirement.name == "skylog":
            needed.remove(requirement)
            needed += [Requirement(text) for extra in requirement.extras for text in extras[extra]]
    assert needed
    assert [str(each) for each in needed if not each.specifier.contains(version(each.name))] == []


def check_event(found: dict[str, Any], shown: dict[str, Any]) -> None:
    assert list(found) == list(shown)
    for key in ("event", "user", "attributes", "application"):
        assert found[key] == shown[key]


def without_times(text: str) -> str:
    return re.sub(r"in \d+\.\d s", "in … s", text.strip())
