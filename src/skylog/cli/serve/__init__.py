"""`skylog serve`: runs a broker. `command` starts it, `console_process` runs the console beside it."""

from __future__ import annotations

from skylog.cli.serve.command import serve

__all__ = ["serve"]
