"""How much is asked of the tests that kill everything: a part of it with every run, all of it with `make proof`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")

IS_FULL = os.environ.get("SKYLOG_PROOF") == "full"


def proof(full: int, usual: int) -> int:
    return full if IS_FULL else usual


def some(cases: Sequence[Case], usual: int) -> Sequence[Case]:
    """All cases, or with every run the first of them only: put those first that stand for the others."""
    return cases if IS_FULL else cases[:usual]
