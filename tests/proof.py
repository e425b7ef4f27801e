"""How much is asked of the tests that kill everything: a part of it with every run, all of it with `make proof`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

Case = TypeVar("Case")

IS_FULL = os.environ.get("SKYLOG_PROOF") == "full"

MILLION = int(os.environ.get("SKYLOG_PROOF_EVENTS", "1000000"))
"""The number of events under kills. A smaller one is for a busy machine, and proves less."""


def proof(full: int, usual: int) -> int:
    return full if IS_FULL else usual


def some(cases: Sequence[Case], usual: int) -> Sequence[Case]:
    """All cases, or with every run the first of them only: put those first that stand for the others."""
    return cases if IS_FULL else cases[:usual]


in_proof = pytest.mark.skipif(not IS_FULL, reason="with `make proof`")
"""Marks a test that has a short form in the same file, or beside it."""
