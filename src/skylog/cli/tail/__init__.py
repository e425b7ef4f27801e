"""`skylog tail`: prints the messages of a topic. `command` defines the options, `topic_tail` reads and prints."""

from __future__ import annotations

from skylog.cli.tail.command import tail

__all__ = ["tail"]
