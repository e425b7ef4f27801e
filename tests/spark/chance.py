"""What tests draw at random: SKYLOG_SEED repeats it, and each run prints its own."""

from __future__ import annotations

import random

from tests.seeds import seed


def chance() -> random.Random:
    return random.Random(seed())
