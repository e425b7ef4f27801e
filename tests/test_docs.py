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


def test_every_package_is_on_the_map_of_the_design() -> None:
    text = (DOCS / "design.md").read_text()
    missing = [
        str(path.relative_to(ROOT / "src" / "skylog"))
        for path in sorted((ROOT / "src" / "skylog").rglob("*.py"))
        if path.name != "__init__.py" and path.parent.name not in ("handlers", "protocol") and path.name not in text
    ]
    assert missing == []


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
