"""How commands speak: tables for people, JSON for scripts, errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console

from skylog.printable import escape_controls, json_text

if TYPE_CHECKING:
    from rich.progress import Progress

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong on stderr and leave."""
    stderr.print("[bold red]error:[/] ", end="")
    stderr.print(escape_controls(message), markup=False)
    sys.exit(code)


def note(message: str) -> None:
    """Say something beside the result, on stderr."""
    stderr.print(escape_controls(message), markup=False, style="dim")


def write(text: str) -> None:
    """Put text on stdout as it is: already escaped, and too much of it for a console to look at each character."""
    sys.stdout.write(text)


def print_json(document: Any) -> None:
    """One JSON document: indented in a terminal, one line in a pipe."""
    write(json_text(document, indent=2 if sys.stdout.isatty() else None) + "\n")


def print_heading(title: str, facts: str) -> None:
    """What the table below it is about."""
    from rich.text import Text

    stdout.print(Text.assemble((escape_controls(title), "bold"), f"  {facts}"))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], *, numbers: Iterable[str] = ()) -> None:
    """A table for people; the columns named in `numbers` stand to the right. A cell may be a Text of one line."""
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(escape_controls(str(cell))) for cell in row))
    stdout.print(table)


def byte_progress(*, shown: bool) -> Progress:
    """A progress bar over bytes on stderr, for long work; nothing at all unless `shown`, which wants a terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
        disable=not (shown and stderr.is_terminal),
    )
