"""The docs name every setting, API and command there is. `python -m tests.test_docs` prints the tables of settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skylog.broker.config import BrokerConfig, ServerConfig
from skylog.broker.handlers import APIS
from skylog.config import Setting, UpdateMode, settings
from skylog.groups import GroupConfig
from skylog.net import NetConfig
from skylog.storage import LogConfig

DOCS = Path(__file__).parents[1] / "docs"
ROOT = Path(__file__).parents[1]


def setting_row(known: Setting, *, broker_key: bool) -> str:
    value = known.format(known.default)
    default = {"": "", str((1 << 63) - 1): "never"}.get(value, f"`{value}`")
    choices = f" One of {', '.join(f'`{choice}`' for choice in known.choices)}." if known.choices else ""
    is_dynamic = not broker_key and known.update_mode is not UpdateMode.READ_ONLY
    mode = f" Changes at run time ({known.update_mode.value})." if is_dynamic else ""
    columns = [f"`{known.key}`", default, known.kind, known.doc + choices + mode]
    if broker_key:
        columns.insert(1, f"`{known.broker_key}`" if known.broker_key else "")
    return "| " + " | ".join(columns) + " |"


def setting_rows() -> list[str]:
    rows = [setting_row(known, broker_key=True) for _, known in sorted(settings(LogConfig).items())]
    for owner in (BrokerConfig, NetConfig, GroupConfig):
        rows += [setting_row(known, broker_key=False) for _, known in sorted(settings(owner).items())]
    return rows


@pytest.mark.parametrize("row", setting_rows())
def test_every_setting_is_documented_with_its_default(row: str) -> None:
    assert row in (DOCS / "configuration.md").read_text().splitlines()


def test_no_setting_is_documented_that_does_not_exist() -> None:
    documented = {line for line in (DOCS / "configuration.md").read_text().splitlines() if line.startswith("| `")}
    assert documented - set(setting_rows()) == set()


def test_the_compatibility_table_is_the_table_of_handlers() -> None:
    rows = re.findall(r"^\| +(\d+) \| (\w+) \| (\d+)–(\d+) \|", (DOCS / "compatibility.md").read_text(), re.MULTILINE)
    documented = {int(key): (name, int(low), int(high)) for key, name, low, high in rows}
    served = {int(api.key): (api.key.name.title().replace("_", ""), api.low, api.high) for api in APIS}
    assert documented == served


def files_on_the_map(text: str) -> set[str]:
    """The paths that the file map names, below src/skylog. A bold row opens a folder, `name/`: a folder in it."""
    found, folder = set(), ""
    for row in text[text.index("## File map") :].splitlines():
        if not row.startswith("| ") or row.startswith("| where"):
            continue
        where = row.split("|")[1]
        if where.strip().startswith("**"):
            folder = where.strip(" *")
            continue
        inner = ""
        for name in re.findall(r"`([^`]+)`", where):
            if name.endswith("/"):
                inner = name
            found.add(folder + (name if name == inner else inner + name))
    return found


def test_every_module_is_on_the_map_of_the_design_in_its_folder() -> None:
    named = files_on_the_map((DOCS / "design.md").read_text())
    source = ROOT / "src" / "skylog"
    modules = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if path.name != "__init__.py" and path.parent not in (source / "protocol", source / "broker" / "handlers")
    }
    assert sorted(modules - named) == []


def test_the_map_names_nothing_that_is_not_there() -> None:
    source = ROOT / "src" / "skylog"
    named = {path for path in files_on_the_map((DOCS / "design.md").read_text()) if "<" not in path}
    assert len(named) > 200
    assert sorted(path for path in named if not (source / path).exists()) == []


def test_the_map_is_read_by_folder() -> None:
    text = "`no.py`\n## File map\n\n| where | what |\n|---|---|\n| `a.py`, `b.py` | `c.py` |\n"
    text += "| **x/** | |\n| `a.py`, `in/`: `d.py`, `e.py` | f |\n| `g.py` | |\n"
    assert files_on_the_map(text) == {"a.py", "b.py", "x/a.py", "x/in/", "x/in/d.py", "x/in/e.py", "x/g.py"}


def test_every_command_is_shown_in_the_readme_or_the_docs() -> None:
    from skylog.cli.main import app

    text = "".join(path.read_text() for path in (ROOT / "README.md", *DOCS.glob("*.md")))
    names = [command.name for command in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        names += [f"{group.name} {command.name}" for command in group.typer_instance.registered_commands]
    assert [name for name in names if f"skylog {name}" not in text] == []


def test_the_defaults_of_the_server_are_those_of_its_parts() -> None:
    assert ServerConfig.parse({}) == ServerConfig()


if __name__ == "__main__":
    print("\n".join(setting_rows()))
