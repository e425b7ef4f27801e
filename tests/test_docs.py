"""The docs name every setting, API and command there is, and what they name exists.

`python -m tests.test_docs` prints the tables of settings.
"""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from skylog.broker.config import BrokerConfig, ServerConfig
from skylog.broker.handlers import APIS
from skylog.config import Setting, UpdateMode, settings
from skylog.groups import ConsumerGroupConfig, GroupConfig
from skylog.net import NetConfig
from skylog.quotas import QuotaConfig
from skylog.security.config import SecurityConfig
from skylog.security.zookeeper_config import ZooKeeperConfig
from skylog.storage import LogConfig
from skylog.transactions import TransactionConfig
from tests.docs_script import docs_script

DOCS = Path(__file__).parents[1] / "docs"
ROOT = Path(__file__).parents[1]
HOOKS = docs_script("site_hooks")
PAGES = sorted(path for pattern in HOOKS.PAGES for path in ROOT.glob(pattern))
COMMAND = re.compile(r"(?:^|[`| ])skylog ([a-z].*?)(?: [#|&>] ?.*)?(?:`|$)", re.MULTILINE)
PAGE_NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]


def setting_row(known: Setting, *, broker_key: bool) -> str:
    value = known.format(known.default)
    unlimited = "no limit" if known.key.endswith(".rate") else "never"
    default = {"": "", str((1 << 63) - 1): unlimited}.get(value, f"`{value}`")
    choices = f" One of {', '.join(f'`{choice}`' for choice in known.choices)}." if known.choices else ""
    is_dynamic = not broker_key and known.update_mode is not UpdateMode.READ_ONLY
    mode = f" Changes at run time ({known.update_mode.value})." if is_dynamic else ""
    columns = [f"`{known.key}`", default, known.kind, known.doc + choices + mode]
    if broker_key:
        columns.insert(1, f"`{known.broker_key}`" if known.broker_key else "")
    return "| " + " | ".join(columns) + " |"


def setting_rows() -> list[str]:
    rows = [setting_row(known, broker_key=True) for _, known in sorted(settings(LogConfig).items())]
    for owner in (
        BrokerConfig,
        NetConfig,
        GroupConfig,
        ConsumerGroupConfig,
        TransactionConfig,
        SecurityConfig,
        ZooKeeperConfig,
        QuotaConfig,
    ):
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
    from skylog.cli.main import command_line

    app = command_line()
    text = "".join(path.read_text() for path in (ROOT / "README.md", *DOCS.glob("*.md")))
    names = [command.name for command in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        names += [f"{group.name} {command.name}" for command in group.typer_instance.registered_commands]
    assert [name for name in names if f"skylog {name}" not in text] == []


@cache
def commands() -> Any:
    from typer.main import get_command

    from skylog.cli.main import command_line

    return get_command(command_line())


def options_of(command: Any) -> set[str]:
    """The options of a command, or of all commands of a group."""
    own = {option for each in command.params for option in [*each.opts, *each.secondary_opts]}
    return own.union(*(options_of(each) for each in getattr(command, "commands", {}).values()))


def wrong_options(text: str) -> list[str]:
    """The options that commands of a page have there, but not in skylog."""
    wrong, every = [], commands()
    for line in COMMAND.findall(text.replace("\\\n", " ")):
        command, words = every, line.split()
        if words[0] not in every.commands:
            continue
        while words and words[0] in getattr(command, "commands", ()):
            command = command.commands[words.pop(0)]
        known = options_of(command) | {"--help", "--config"}
        wrong += [f"{line}: {each}" for each in re.findall(r"(?<= )--[a-z][a-z-]*", line) if each not in known]
    return wrong


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_every_option_of_a_command_that_a_page_shows_exists(name: str) -> None:
    assert wrong_options((ROOT / name).read_text()) == []


def test_an_option_that_a_command_lacks_is_found() -> None:
    page = "    skylog tail x --json # --no\n`skylog groups reset g --jsn` or\n$ skylog log verify d --rcords\n"
    assert [each.rpartition(" ")[2] for each in wrong_options(page)] == ["--jsn", "--rcords"]
    assert wrong_options("    skylog capture URL --once --onec | x --y\n") == ["capture URL --once --onec: --onec"]


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_every_link_leads_to_a_file_of_the_repository_and_a_heading_in_it(name: str) -> None:
    page = ROOT / name
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        site = [*HOOKS.PAGES, *HOOKS.ASSETS]
        assert any(target.relative_to(ROOT).match(pattern) for pattern in site), f"{link} is not on the site"
        if anchor:
            assert anchor in anchors(target), link


def test_every_page_is_in_the_navigation_of_the_site_and_in_the_readme() -> None:
    navigation = re.findall(r": ((?!api/)\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(navigation) == sorted(PAGE_NAMES)
    readme = (ROOT / "README.md").read_text()
    assert [name for name in PAGE_NAMES if name.startswith("docs/") and f"({name})" not in readme] == []


def test_every_page_of_the_reference_is_in_the_navigation_of_the_site() -> None:
    navigation = re.findall(r": api/(\S+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert navigation == list(HOOKS.API)


def find(name: str) -> Any:
    """The module or the member of a module with this dotted name."""
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], start=2):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(".".join(parts[:number]))
    return found


def names_in(text: str) -> Iterator[str]:
    """The dotted names of Python that a page has in its code: imports, and `skylog.…` anywhere in it."""
    blocks = re.findall(r"^```python.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        for statement in re.findall(r"^ *from skylog[\w.]* import (?:\([^)]*\)|.*)$", block, re.MULTILINE):
            node = ast.parse(textwrap.dedent(statement)).body[0]
            assert isinstance(node, ast.ImportFrom)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for code in (*blocks, *re.findall(r"`([^`\n]+)`", text)):
        yield from re.findall(r"(?<![\w./-])skylog(?:\.[A-Za-z_]\w*)+", code)


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_every_name_of_the_api_that_a_page_has_exists(name: str) -> None:
    for dotted in sorted(set(names_in((ROOT / name).read_text()))):
        if dotted.startswith("skylog.spark") and find_spec("pyspark") is None:
            continue
        find(dotted)


def test_names_are_found_in_blocks_and_in_text() -> None:
    block = "```python\nfrom skylog.c import (\n    D,\n    E,\n)\nskylog.f\n```\n"
    text = f"Use `skylog.a.B(x)` and `/etc/skylog.conf`.\n{block}"
    assert sorted(names_in(text)) == ["skylog.a.B", "skylog.c", "skylog.c.D", "skylog.c.E", "skylog.f"]
    with pytest.raises(ImportError):
        find("skylog.testing.NoSuchThing")


def test_the_page_of_the_test_kit_has_all_its_names() -> None:
    text = (DOCS / "testing.md").read_text()
    assert [name for name in HOOKS.public_names("skylog.testing") if f"`{name}" not in text] == []


def test_the_glossary_names_files_that_exist() -> None:
    text = (DOCS / "design.md").read_text()
    glossary = text[text.index("## Glossary") : text.index("## File map")]
    named = re.findall(r"`(\w+/\w+\.py)`", glossary)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "src" / "skylog" / name).exists()] == []


def test_the_picture_of_the_architecture_is_drawn_from_its_description() -> None:
    architecture = docs_script("architecture")
    assert architecture.PICTURE.read_text() == architecture.render(architecture.TEXT.read_text()), (
        "run python docs/architecture.py"
    )


def test_a_download_at_view_time_is_found() -> None:
    page = (
        '<link rel="stylesheet" href="https://a/b.css"><link rel="canonical" href="https://c/"><script src="//d/e.js">'
    )
    page += '</script><img src="f.png"><a href="https://g/"></a><style>@import "http://h/i.css"; a {color: red}</style>'
    assert list(HOOKS.downloads(page)) == ["https://a/b.css", "//d/e.js", "http://h/i.css"]
    style = "a {background: url(data:image/svg+xml;x)} @font-face {src: url('https://fonts/j.woff2')}"
    assert list(HOOKS.downloads(style, is_style=True)) == ["https://fonts/j.woff2"]


def test_the_defaults_of_the_server_are_those_of_its_parts() -> None:
    assert ServerConfig.parse({}) == ServerConfig()


if __name__ == "__main__":
    print("\n".join(setting_rows()))
