"""Tunes Python's garbage collector: a full collection visits every object and blocks the event loop meanwhile.

Requests create no reference cycles (`tests/broker/test_garbage_collection.py` checks that), so their objects are freed
without it. It can therefore run rarely, and skip the objects that exist after startup.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 5_000
YOUNG_ROUNDS: Final = 5
OLD_ROUNDS: Final = 400  # a full collection after about ten million new objects that have survived


def tune_garbage_collector() -> None:
    """Call this once, when the broker process has started. It may have been disabled until then."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_ROUNDS, OLD_ROUNDS)
