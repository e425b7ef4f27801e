"""How commands speak: tables for people, JSON for scripts, errors in one line."""

from __future__ import annotations

import sys
from typing import NoReturn

from rich.console import Console

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong on stderr and leave."""
    stderr.print("[bold red]error:[/] ", end="")
    stderr.print(message, markup=False)
    sys.exit(code)
