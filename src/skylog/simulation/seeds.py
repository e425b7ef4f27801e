"""Runs seeds, in this process or in several."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Final

from skylog.simulation.bugs import BUGS
from skylog.simulation.run import Result, Undo, Visit, run_scenario
from skylog.simulation.scenario import draw_scenario

RUNS_PER_PROCESS: Final = 20


@dataclass(frozen=True)
class Summary:
    """What is left of a run in another process."""

    seed: int
    violations: list[str]
    digest: str
    seconds: float
    acknowledged: int


def run_seed(seed: int, undo: Undo | None = None, faults: int | None = None, visit: Visit | None = None) -> Result:
    """Run a seed, or the first `faults` faults of it."""
    scenario = draw_scenario(seed)
    if faults is not None:
        scenario = replace(scenario, plan=scenario.plan[:faults])
    result = run_scenario(scenario, undo, visit)
    gc.collect()  # the brokers and their open files are cycles
    return result


def summarize(seed: int, undone: str | None = None) -> Summary:
    result = run_seed(seed, undo_of(undone))
    return Summary(seed, result.violations, result.trace.digest, result.seconds, result.acknowledged)


def undo_of(name: str | None) -> Undo | None:
    return BUGS[name].undo if name is not None else None


def run_seeds(seeds: Sequence[int], jobs: int, undone: str | None = None) -> Iterator[Summary]:
    """Run seeds in several processes, which are all replaced after some runs.

    `max_tasks_per_child` would replace each by itself, but the pool can then hang (CPython's issue 115634).
    """
    if jobs == 1:
        yield from (summarize(seed, undone) for seed in seeds)
        return
    count = jobs * RUNS_PER_PROCESS
    for start in range(0, len(seeds), count):
        with ProcessPoolExecutor(jobs, get_context("spawn")) as processes:
            yield from processes.map(partial(summarize, undone=undone), seeds[start : start + count])
