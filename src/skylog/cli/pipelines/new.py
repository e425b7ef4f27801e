"""`skylog pipeline new`: writes a small project with a job and its test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from skylog.errors import SkylogError
from skylog.terminal import note

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TEMPLATES: Final = Path(__file__).with_name("new_project")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The directory of the project.", show_default=False)],
) -> None:
    """Write a project: a job, its test with a broker and Spark, and a README. It runs as it is.

    [bold]skylog pipeline new shop[/]
    """
    directory = Path(name)
    if not _NAME.fullmatch(directory.name):
        raise typer.BadParameter(f"'{directory.name}' is not a name: use letters, digits, _ and -", param_hint="NAME")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise typer.BadParameter(f"'{directory}' exists and is not an empty directory", param_hint="NAME")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for template in sorted(_TEMPLATES.glob("*.template")):
            text = template.read_text(encoding="utf-8").replace("PROJECT", directory.name)
            (directory / template.name.removesuffix(".template")).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SkylogError(f"cannot write to {directory}: {error.strerror}; choose another directory") from error
    note(f"wrote {directory}: see {directory / 'README.md'}")
