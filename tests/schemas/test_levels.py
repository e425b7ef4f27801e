"""The seven levels of compatibility: which schemas are compared, in which direction, and what is reported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from skylog.errors import SkylogError
from skylog.schemas import Schema, SchemaType, parse
from skylog.schemas.levels import CompatibilityLevel, check, first_conflict

Level = CompatibilityLevel


def record(*fields: tuple[str, bool]) -> Schema:
    """A record of numbers; a field may have a default."""
    nodes = [{"name": name, "type": "int", **({"default": 0} if default else {})} for name, default in fields]
    return parse(SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": nodes}))


A = record(("a", False))
A_B = record(("a", False), ("b", False))
A_B_DEFAULT = record(("a", False), ("b", True))
B_DEFAULT = record(("b", True))


@pytest.mark.parametrize(
    ("level", "new", "earlier", "fits"),
    [
        # adding a field without a default breaks new readers; removing one breaks old readers
        (Level.NONE, A_B, [A], True),
        (Level.BACKWARD, A_B, [A], False),
        (Level.FORWARD, A_B, [A], True),
        (Level.FULL, A_B, [A], False),
        (Level.BACKWARD, A, [A_B], True),
        (Level.FORWARD, A, [A_B], False),
        (Level.FULL, A, [A_B], False),
        (Level.FULL, A_B_DEFAULT, [A], True),
        (Level.FULL_TRANSITIVE, A_B_DEFAULT, [A], True),
        # only the latest counts, unless the level is transitive
        (Level.BACKWARD, A_B, [A, A_B], True),
        (Level.BACKWARD_TRANSITIVE, A_B, [A, A_B], False),
        (Level.FORWARD, A, [A_B, A], True),
        (Level.FORWARD_TRANSITIVE, A, [A_B, A], False),
        (Level.FULL, A_B_DEFAULT, [B_DEFAULT, A], True),
        (Level.FULL_TRANSITIVE, A_B_DEFAULT, [B_DEFAULT, A], False),
        (Level.BACKWARD_TRANSITIVE, A, [], True),
        (Level.FULL, A, [], True),
    ],
)
def test_a_level_allows_what_its_readers_can_read(level: Level, new: Schema, earlier: list[Schema], fits: bool) -> None:
    assert (check(level, new, earlier) == []) is fits


def test_the_sentences_say_which_schema_is_new() -> None:
    (backward,) = check(Level.BACKWARD, A_B, [A])
    assert "in the new schema has no default value and is missing in the old schema" in backward
    (forward,) = check(Level.FORWARD, A, [A_B])
    assert "in the old schema has no default value and is missing in the new schema" in forward
    both = check(Level.FULL, record(("c", False)), [A])
    assert ["in the old schema" in both[0], "in the new schema" in both[1]] == [True, True]


def test_the_latest_schema_in_conflict_is_reported() -> None:
    found = first_conflict(Level.BACKWARD_TRANSITIVE, A_B, [A, B_DEFAULT, A_B])
    assert found is not None
    assert found[0] == 1
    assert first_conflict(Level.BACKWARD, A_B, [A, B_DEFAULT, A_B]) is None


def test_a_schema_of_another_format_fits_only_without_a_level() -> None:
    other = parse(SchemaType.JSON, "{}")
    assert check(Level.NONE, other, [A]) == []
    for level in set(Level) - {Level.NONE}:
        assert check(level, other, [A]) == ["Incompatible because of different schema type"]


@pytest.mark.parametrize("kind", [SchemaType.JSON, SchemaType.PROTOBUF])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    kind: SchemaType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("skylog.schemas.json_", "skylog.schemas.protobuf"))]:
        monkeypatch.delitem(sys.modules, name)
    for library in ("jsonschema", "grpc_tools"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SkylogError, match=r"require pip install 'skylog\[schemas\]'"):
        parse(kind, "{}")


def test_importing_the_package_loads_no_library_of_a_format() -> None:
    libraries = {"jsonschema", "referencing", "google", "grpc_tools", "fastavro"}
    program = "import sys, skylog.schemas.levels; print(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not libraries & set(run.stdout.split())
