"""The seed of tests that draw at random: printed, so that it shows with a failure, and taken to repeat it.

SKYLOG_SEED=1234 python -m pytest tests/faults/test_crash.py
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

VARIABLE = "SKYLOG_SEED"


def seed_of_the_day() -> int:
    """What the environment says, otherwise another number every day: the same for all who run the tests on it."""
    number = int(os.environ.get(VARIABLE) or f"{datetime.now(UTC):%Y%m%d}00")
    print(f"{VARIABLE}={number}")
    return number


def seed() -> int:
    """What the environment says, otherwise a number drawn now."""
    given = os.environ.get(VARIABLE)
    number = int(given) if given else random.SystemRandom().randrange(1 << 32)
    print(f"{VARIABLE}={number}")
    return number
