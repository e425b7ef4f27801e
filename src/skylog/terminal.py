"""Prints the output of commands: tables for people, JSON for scripts, notes and errors on stderr."""

from __future__ import annotations

import codecs
import io
import json
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
    """Print an error on stderr and exit."""
    stderr.print("[bold red]error:[/] ", end="")
    stderr.print(escape_controls(message), markup=False)
    sys.exit(code)


def note(message: str) -> None:
    """Print a note on stderr, separate from the result."""
    stderr.print(escape_controls(message), markup=False, style="dim")


def escape_unencodable() -> None:
    """Write `\\uNNNN` to stdout for what its encoding lacks: a valid escape in JSON, too, and no reason to fail."""
    codecs.register_error("skylog", _as_escapes)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="skylog")


def _as_escapes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def write(text: str) -> None:
    """Write text to stdout unchanged. The caller has escaped it. Much faster than rich for large output."""
    sys.stdout.write(text)


def print_json(document: Any) -> None:
    """Print a JSON document: indented in a terminal, on one line in a pipe."""
    write(json_text(document, indent=2 if sys.stdout.isatty() else None) + "\n")


def print_heading(title: str, facts: str) -> None:
    """Print the heading of a table."""
    from rich.text import Text

    stdout.print(Text.assemble((escape_controls(title), "bold"), f"  {facts}"))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], *, numbers: Iterable[str] = ()) -> None:
    """Print a table. The columns named in `numbers` are right-aligned. A cell may be a Text of one line."""
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
    """Create a progress bar in bytes on stderr. Displays nothing if `shown` is false or stderr is no terminal."""
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
