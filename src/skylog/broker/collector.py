"""Python's garbage collector in a broker: a full collection looks at every object while nobody is served.

What requests leave behind is freed without it, because they make no reference cycles (`tests/broker/test_collector.py`
holds that). So it may look rarely, and never again at what is there from the start.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 5_000
YOUNG_ROUNDS: Final = 5
OLD_ROUNDS: Final = 400  # a full collection after about ten million new objects that have stayed


def collect_rarely() -> None:
    """To be called once, by the process that serves, when it has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_ROUNDS, OLD_ROUNDS)
