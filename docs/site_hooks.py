"""The hooks of MkDocs for `make docs`: which files are pages, the API reference, and the check for downloads.

The site has the folders of the repository, so a link that works on GitHub works on the site.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "examples/*/README.md",
    "docs/*.md",
    "docs/jobs/*.md",
)
ASSETS = ("docs/images/*", "docs/*.json", "docs/*.txt", "docs/*.yml")

API = {
    "skylog": ("skylog",),
    "skylog.client": ("skylog.client",),
    "skylog.events": ("skylog.events", "skylog.events.asgi", "skylog.events.wsgi", "skylog.events.django"),
    "skylog.audit": ("skylog.audit",),
    "skylog.spark": ("skylog.spark.session", "skylog.spark.source", "skylog.spark.progress", "skylog.spark.workers"),
    "skylog.pipeline": (
        "skylog.pipeline",
        "skylog.pipeline.jobs.land",
        "skylog.pipeline.jobs.visits",
        "skylog.pipeline.jobs.rising",
        "skylog.pipeline.jobs.rekey",
        "skylog.pipeline.jobs.feed",
        "skylog.pipeline.jobs.spam",
        "skylog.pipeline.jobs.monitoring",
        "skylog.pipeline.jobs.security",
        "skylog.pipeline.jobs.materialize",
        "skylog.pipeline.jobs.audit",
        "skylog.pipeline.jobs.search",
        "skylog.pipeline.jobs.recommendations",
    ),
    "skylog.testing": ("skylog.testing",),
}
"""The pages of the reference, and the modules on each."""


def on_files(files: Any, *, config: Any) -> Any:
    """Replace the files below docs/ by those of the repository, with their paths, and add the reference."""
    from mkdocs.structure.files import File

    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    for pattern in (*PAGES, *ASSETS):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    for page, modules in API.items():
        files.append(File.generated(config, f"api/{page}.md", content=reference(page, modules)))
    return files


def on_post_build(*, config: Any) -> None:
    """Fail if a page of the site would load anything from elsewhere."""
    from mkdocs.exceptions import PluginError

    found = [
        f"{path.relative_to(config.site_dir)}: {address}"
        for path in sorted(Path(config.site_dir).rglob("*"))
        if path.suffix in (".html", ".css")
        for address in downloads(path.read_text(), is_style=path.suffix == ".css")
    ]
    if found:
        raise PluginError("the site loads from elsewhere:\n" + "\n".join(found))


def reference(page: str, modules: tuple[str, ...]) -> str:
    """Return a page of the reference as Markdown for mkdocstrings."""
    if page == "skylog":
        names = [f"* [`skylog.{name}`][skylog.client.{name}]" for name in public_names(page) if name != "__version__"]
        return "# skylog\n\nThe names that most applications need, from `skylog.client`:\n\n" + "\n".join(names) + "\n"
    parts = [f"# {page}\n"]
    for module in modules:
        if len(modules) > 1:
            parts.append(f"## {module}\n")
        members = "".join(f"        - {name}\n" for name in public_names(module))
        parts.append(f"::: {module}\n    options:\n      heading_level: 3\n      members:\n{members}")
    return "\n".join(parts)


def public_names(module: str) -> list[str]:
    """Return `__all__` of a module; without one, its constants, classes and functions. Imports nothing."""
    path = SOURCE.joinpath(*module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return sorted(ast.literal_eval(node.value))
    names = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return [name for name in names if not name.startswith("_")]


class _Resources(HTMLParser):
    """Collects the addresses of everything that a browser loads with a page. Links that a reader follows are not."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._is_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._is_style = tag == "style"
        addresses = [values.get("src"), values.get("srcset"), values.get("poster")]
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next", "alternate"):
            addresses.append(values.get("href"))
        self.found += [address for address in addresses if address]

    def handle_data(self, data: str) -> None:
        if self._is_style:
            self.found += style_addresses(data)

    def handle_endtag(self, tag: str) -> None:
        self._is_style = False


def style_addresses(text: str) -> list[str]:
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", text)


def downloads(text: str, *, is_style: bool = False) -> Iterator[str]:
    """Yield the addresses on other servers that a page, or a style sheet, loads."""
    if is_style:
        found = style_addresses(text)
    else:
        parser = _Resources()
        parser.feed(text)
        found = parser.found
    for address in found:
        if re.match(r"(?:[a-z]+:)?//", address, re.IGNORECASE):
            yield address
