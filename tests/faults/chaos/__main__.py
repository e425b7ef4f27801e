"""`python -m tests.faults.chaos`: one run, and its report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.seeds import seed

from .report import page
from .run import run_here


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults happen")
    parser.add_argument("--seed", type=int, help="determines the faults; not their effects, which depend on time")
    parser.add_argument("--report", type=Path, default=Path("build/chaos.html"), help="where the report goes")
    options = parser.parse_args()
    outcome = run_here(options.minutes * 60, options.seed if options.seed is not None else seed())
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(page(outcome))
    for line in [*outcome.violations[:20], *outcome.clients, *(f"not part of it: {each}" for each in outcome.missing)]:
        print(line)
    print(f"{len(outcome.timeline.spans)} faults, {len(outcome.violations)} violations; report: {options.report}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
