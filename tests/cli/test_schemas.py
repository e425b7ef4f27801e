"""`skylog schemas`, against `skylog registry`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run_skylog
from tests.registry.registry_process import running_registry

V1: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {**V1, "fields": [*V1["fields"], {"name": "note", "type": "string"}]}


@pytest.fixture(scope="module")
def registry_url(skylog_bootstrap: str) -> Iterator[str]:
    with running_registry(skylog_bootstrap) as registry:
        yield registry.url


def test_a_schema_is_registered_shown_listed_and_checked(registry_url: str, tmp_path: Path) -> None:
    first, second = tmp_path / "v1.avsc", tmp_path / "v2.avsc"
    first.write_text(json.dumps(V1))
    second.write_text(json.dumps(V2))
    here = ("--registry", registry_url)

    registered = json.loads(run_skylog("schemas", "register", "orders-value", str(first), "--json", *here).stdout)
    assert (registered["subject"], registered["version"]) == ("orders-value", 1)

    shown = run_skylog("schemas", "show", "orders-value", *here).stdout
    assert "version 1 of 1" in shown
    assert '"name": "Order"' in shown
    by_id = json.loads(run_skylog("schemas", "show", "--id", str(registered["id"]), "--json", *here).stdout)
    assert json.loads(by_id["schema"]) == V1

    (listed,) = json.loads(run_skylog("schemas", "list", "--prefix", "orders-value", "--json", *here).stdout)
    assert (listed["subject"], listed["type"], listed["compatibility"]) == ("orders-value", "AVRO", "BACKWARD")

    table = run_skylog("schemas", "list", *here).stdout.splitlines()
    assert table[0].split() == ["SUBJECT", "VERSION", "ID", "TYPE", "COMPATIBILITY"]
    assert "there are no subjects that begin with x" in run_skylog("schemas", "list", "--prefix", "x", *here).stderr

    assert "is version 1" in run_skylog("schemas", "check", "orders-value", str(first), *here).stderr
    refused = run_skylog("schemas", "check", "orders-value", str(second), *here)
    assert refused.returncode == 1
    assert "does not fit orders-value (BACKWARD)" in refused.stderr
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.stderr


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("schema.txt", (), "give the format with --type"),
        ("gone.avsc", (), "cannot read"),
        ("schema.avsc", ("--registry", "http://127.0.0.1:1"), "start one with `skylog registry`"),
    ],
)
def test_mistakes_are_named_with_the_fix(tmp_path: Path, name: str, arguments: tuple[str, ...], reason: str) -> None:
    if not name.startswith("gone"):
        (tmp_path / name).write_text('"string"')
    done = run_skylog("schemas", "register", "s", str(tmp_path / name), *arguments)
    assert done.returncode == 1
    assert reason in done.stderr
