"""How much is asked of the tests that kill everything: a part of it with every run, all of it with `make proof`."""

from __future__ import annotations

import os

IS_FULL = os.environ.get("SKYLOG_PROOF") == "full"


def proof(full: int, usual: int) -> int:
    return full if IS_FULL else usual
