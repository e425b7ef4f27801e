"""Runs seeds, shows traces, replays a seed in the debugger."""

from __future__ import annotations

import argparse
import bdb
import pdb
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from skylog.simulation.bugs import BUGS
from skylog.simulation.run import Result, Visit
from skylog.simulation.seeds import run_seed, run_seeds, undo_of
from skylog.simulation.shrinking import shortest_plan
from skylog.simulation.world import World

SHOWN_VIOLATIONS = 20
SEEDS_PER_LINE = 100


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m skylog.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed and show what it does")
    parser.add_argument("--seeds", type=int, default=100, help="without --seed: run this many seeds (100)")
    parser.add_argument("--first", type=int, default=1, help="without --seed: the first of them (1)")
    parser.add_argument("--jobs", type=int, default=2, help="without --seed: processes to run them in (2)")
    parser.add_argument("--faults", type=int, help="with --seed: apply the first faults only")
    parser.add_argument("--trace", action="store_true", help="with --seed: show the whole trace")
    parser.add_argument("--replay", action="store_true", help="with --seed: enter the debugger when a check has failed")
    parser.add_argument("--at", type=float, metavar="SECONDS", help="with --replay: enter it at this time of the trace")
    parser.add_argument(
        "--undo", choices=sorted(BUGS), metavar="BUG", help=f"remove the fix for this bug: {', '.join(sorted(BUGS))}"
    )
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return show_seed(options.seed, options)
    if options.trace or options.replay or options.faults is not None:
        parser.error("--trace, --replay and --faults are for one run: add --seed")
    return show_seeds(range(options.first, options.first + options.seeds), options.jobs, options.undo)


def show_seeds(seeds: range, jobs: int, undone: str | None) -> int:
    began = time.monotonic()
    failed, seconds, acknowledged = [], 0.0, 0
    for count, summary in enumerate(run_seeds(seeds, jobs, undone), 1):
        seconds += summary.seconds
        acknowledged += summary.acknowledged
        if summary.violations:
            failed.append(summary.seed)
            _say(f"seed {summary.seed} fails: {summary.violations[0]} ({len(summary.violations)} violations)")
        if count % SEEDS_PER_LINE == 0 and count < len(seeds):
            _say(f"{count} of {len(seeds)} seeds, {seconds / 3600:.2f} simulated hours, {len(failed)} failed so far")
    _say(
        f"{len(seeds)} seeds, {seconds / 3600:.2f} simulated hours in {time.monotonic() - began:.0f} s, "
        f"{acknowledged} messages acknowledged, {len(failed)} seeds failed"
    )
    for seed in failed[:SHOWN_VIOLATIONS]:
        _say(_command(seed, undone))
    return 1 if failed else 0


def show_seed(seed: int, options: argparse.Namespace) -> int:
    undone = undo_of(options.undo)
    visit = Visit(options.at, enter_debugger) if options.replay and options.at is not None else None
    result = run_seed(seed, undone, options.faults, visit)
    if options.trace:
        _say("\n".join(result.trace.lines))
    _say(f"seed {seed}: {result.scenario}")
    _say(f"{len(result.trace.lines)} lines of trace {result.trace.digest}, {result.seconds:.0f} simulated seconds")
    if not result.violations:
        _say(f"{result.acknowledged} messages acknowledged, nothing violated")
        return 0
    for line in result.violations[:SHOWN_VIOLATIONS]:
        _say(line)
    for line in result.disks:
        _say(f"on disk: {line}")
    if options.faults is None:
        plan = result.scenario.plan
        _say("looking for the shortest prefix of its faults that still fails …")
        count = shortest_plan(len(plan), lambda kept: bool(run_seed(seed, undone, kept).violations))
        _say(f"still fails with the first {count} of {len(plan)} faults:")
        _say(f"  {_command(seed, options.undo)} --faults {count} --trace")
        for fault in result.scenario.plan[:count]:
            _say(f"  {fault}")
    if options.replay:
        _say("`result` has the violations, the trace, and what is on disk; `q` ends the debugger")
        with suppress(bdb.BdbQuit):
            return enter_debugger_after(result)
    return 1


def enter_debugger_after(result: Result) -> int:
    """Stop after a run that has failed. Return the exit code."""
    pdb.set_trace()
    return 1 if result.violations else 0


def _command(seed: int, undone: str | None) -> str:
    return f"python -m skylog.simulation --seed {seed}" + (f" --undo {undone}" if undone is not None else "")


def enter_debugger(world: World) -> None:
    """Stop in the middle of a run. `world.machines[1].broker` is the first broker."""
    pdb.set_trace()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
