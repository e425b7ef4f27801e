"""Asks before what cannot be undone. Without a terminal nobody can answer, so such a command requires `--yes`."""

from __future__ import annotations

import sys

import typer

from skylog.printable import escape_controls
from skylog.terminal import fail


def confirm(question: str, danger: str, refusal: str = "nothing was changed") -> None:
    """Ask a question, and exit with `refusal` unless the answer is yes. `danger` says what is at stake."""
    require_terminal(danger)
    ask(question, refusal)


def require_terminal(danger: str, advice: str = "confirm with --yes") -> None:
    if not sys.stdin.isatty():
        fail(f"{danger}: stdin is not a terminal, so {advice}")


def ask(question: str, refusal: str) -> None:
    if not typer.confirm(escape_controls(question), err=True):
        fail(refusal)
