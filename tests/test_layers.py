"""The layers of the design, checked by reading the imports of every module; and that tests mirror the packages.

A line of `LAYERS` may import only lines below it; packages on one line do not import each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "skylog"
LAYERS = (
    ("cli",),
    ("demo",),
    ("development", "simulation"),
    ("console", "pipeline", "capture", "testing"),
    ("registry",),
    ("spark",),
    ("audit_topic", "job_publisher"),
    ("broker", "client", "events", "audit"),
    ("storage", "groups", "transactions", "cluster", "net", "replication", "security", "quotas", "web", "schemas"),
    ("records", "protocol"),
    ("config",),
    ("model", "metric", "job_status", "alert", "message_document", "search_index", "terminal", "java", "outage"),
    (
        "errors",
        "clock",
        "printable",
        "units",
        "limited_logger",
        "lifeline",
        "bound_process",
        "long_slice",
        "durable_files",
        "tracing",
        "fastest_loop",
        "windowed_rate",
    ),
)
HEIGHT = {name: -line for line, names in enumerate(LAYERS) for name in names}


@cache
def imported_packages(module: Path, source: Path) -> list[tuple[int, str]]:
    """Line and top-level part under `skylog` of each import, wherever it stands in the module."""
    return list(_imports(module, source))


def _imports(module: Path, source: Path) -> Iterator[tuple[int, str]]:
    package = ("skylog", *module.relative_to(source).parent.parts)
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            names = [f"skylog.{alias.name}" for alias in node.names] if origin == "skylog" else [origin]
        else:
            continue
        for name in names:
            root, _, rest = name.partition(".")
            if root == "skylog" and rest:
                yield node.lineno, rest.partition(".")[0]


def violations(source: Path) -> list[str]:
    found = []
    for module in sorted(source.rglob("*.py")):
        parts = module.relative_to(source).with_suffix("").parts
        own = parts[0]
        if own.startswith("__"):
            continue  # the root package and its entry point stand above all layers
        if own not in HEIGHT:
            found.append(f"{module.relative_to(source)}: {own} is in no layer")
            continue
        for line, other in imported_packages(module, source):
            if other not in HEIGHT:
                continue  # a name of the root package, such as __version__
            if other != own and HEIGHT[other] >= HEIGHT[own]:
                found.append(f"{module.relative_to(source)}:{line}: {own} imports {other}")
    return found


def test_every_import_points_to_a_lower_layer() -> None:
    assert violations(SOURCE) == []


def test_nothing_but_the_test_kit_and_the_simulation_imports_the_test_kit() -> None:
    importers = [
        f"{module.relative_to(SOURCE)}:{line}"
        for module in sorted(SOURCE.rglob("*.py"))
        for line, other in imported_packages(module, SOURCE)
        if other == "testing" and module.relative_to(SOURCE).parts[0] not in ("testing", "simulation")
    ]
    assert importers == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from skylog.errors import KafkaError", False),
        ("from skylog import errors", False),
        ("import skylog.records.batch", False),
        ("from skylog.storage.log import Log", False),
        ("from .log import Log", False),
        ("from . import log", False),
        ("from ..records import batch", False),
        ("import os", False),
        ("from skylog.broker import Broker", True),
        ("import skylog.broker.broker", True),
        ("from skylog import broker", True),
        ("from ..broker import Broker", True),
        ("from skylog.net import Listener", True),
        ("if TYPE_CHECKING:\n    from skylog.broker import Broker", True),
        ("def lazily():\n    from skylog.cli import main", True),
    ],
)
def test_an_import_of_the_same_or_a_higher_layer_is_found(tmp_path: Path, text: str, found: bool) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "segment.py").write_text(text + "\n")
    assert bool(violations(tmp_path)) is found


def test_a_package_that_is_in_no_layer_is_found(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("")
    assert violations(tmp_path) == ["utils.py: utils is in no layer"]


def test_every_package_has_its_folder_of_tests() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    tested = {path.relative_to(Path(__file__).parent).parts[0] for path in Path(__file__).parent.glob("*/**/test_*.py")}
    assert len(packages) > 10
    assert packages - tested == set()
