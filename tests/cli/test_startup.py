"""What commands import at startup, and their help texts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from skylog.cli.main import command_line

app = command_line()

COMMANDS = [
    ["serve"],
    ["console"],
    ["zookeeper"],
    ["cluster", "up"],
    ["topics", "create"],
    ["topics", "list"],
    ["topics", "describe"],
    ["topics", "alter"],
    ["topics", "delete"],
    ["produce"],
    ["tail"],
    ["replay"],
    ["demo"],
    *(["pipeline", "run", job] for job in ("land", "visits", "rising", "rekey", "materialize", "audit", "job")),
    *(["pipeline", "run", job] for job in ("feed", "spam", "monitoring", "security")),
    *(["pipeline", "run", job] for job in ("search", "recommendations", "newsletters")),
    ["pipeline", "send"],
    ["search"],
    *(["pipeline", "table", name] for name in ("history", "optimize", "vacuum")),
    ["pipeline", "new"],
    ["log", "dump"],
    ["log", "verify"],
    ["groups", "list"],
    ["groups", "describe"],
    ["groups", "reset"],
    ["groups", "delete"],
    *(["transactions", name] for name in ("list", "describe", "find-hanging", "abort")),
    *(["cluster", name] for name in ("describe", "elect", "reassign", "drain", "registry")),
    ["audit", "show"],
    ["audit", "verify"],
    *(["users", name] for name in ("add", "list", "remove")),
    *(["acls", name] for name in ("add", "list", "remove", "check")),
    *(["quotas", name] for name in ("set", "list", "remove")),
    *(["mirror", name] for name in ("create", "list", "describe", "pause", "resume", "promote", "delete")),
    ["secure"],
    ["registry"],
    *(["schemas", name] for name in ("list", "show", "check", "register")),
    *(["capture", name] for name in ("run", "drop")),
]


def imported_by(*arguments: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", "-m", "skylog.cli.main", *arguments]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=60).stderr.splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_serve_does_without_the_client_library() -> None:
    modules = imported_by("serve", "--set", "no.such.key=1")
    assert "skylog.broker" in modules
    assert not modules & {"confluent_kafka", "numpy", "skylog.client", "rich.table", "rich.progress"}
    assert not modules & {"skylog.broker.clustered", "skylog.cli.topics", "skylog.cli.pipelines"}
    assert not modules & {"skylog.net.tls", "skylog.broker.security.login", "cryptography", "joserfc"}
    assert not modules & {"crc32c", "importlib.metadata", "email.message"}  # only the extension of crc32c


def test_a_client_command_does_without_the_broker() -> None:
    modules = imported_by("topics", "list", "--bootstrap", "127.0.0.1:1")
    assert "confluent_kafka" in modules
    assert not modules & {"skylog.broker", "skylog.storage", "uvloop"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_an_example(command: list[str]) -> None:
    printed = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).stdout
    name = " ".join(command).removesuffix(" run")  # `capture` is short for `capture run`
    assert printed.count(f"skylog {name} ") + printed.count(f"skylog {name}\n") >= 2


@pytest.mark.parametrize("group", sorted({" ".join(command[:-1]) for command in COMMANDS}))
def test_the_help_of_every_group_has_an_example(group: str) -> None:
    printed = CliRunner().invoke(app, [*group.split(), "--help"], env={"COLUMNS": "200"}, prog_name="skylog").stdout
    examples = [line.split() for line in printed.splitlines() if f"skylog {group}".strip() in line]
    assert [words for words in examples if "Usage:" not in words]


def test_every_command_is_in_the_list() -> None:
    assert sorted(commands(app)) == sorted(COMMANDS)


def commands(group: typer.Typer) -> Iterator[list[str]]:
    for command in group.registered_commands:
        yield [command.name or ""]
    for below in group.registered_groups:
        assert below.typer_instance is not None
        for names in commands(below.typer_instance):
            yield [below.name or "", *names]
