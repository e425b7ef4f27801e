"""`skylog produce`: sends lines as messages.

`command` defines the options, `input_format` parses a line, `sender` passes messages to librdkafka.
"""

from __future__ import annotations

from skylog.cli.produce.command import produce

__all__ = ["produce"]
