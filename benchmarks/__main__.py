"""`python -m benchmarks [NAME…]`: run the named benchmarks, or all of them, one after the other."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from benchmarks.report import RESULTS, Options, Report, show, store

NAMES = (
    "limit",
    "users",
    "latency",
    "groups",
    "takeover",
    "growth",
    "compaction",
    "start",
    "kafka",
    "replication",
    "mirror",
    "capture",
    "transactions",
    "partitions",
    "connections",
    "security",
    "catch_up",
    "stalls",
    "loops",
    "overhead",
    "async_clients",
    "events",
    "console",
    "spark_read",
    "spark_write",
    "avro",
    "land",
    "upsert",
    "instructions",
    "spark_cpu",
    "compare",
    "compare_clusters",
)


def parse(arguments: list[str]) -> tuple[list[str], Options, bool]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="skylog's benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)}; all without any")
    parser.add_argument("--quick", action="store_true", help="less time per figure: indicative only, under 2 minutes")
    parser.add_argument("--seconds", type=float, help="length of one measured run (default 0.7, quick 0.3)")
    parser.add_argument("--rounds", type=int, help="runs per figure, of which the median counts (default 5, quick 1)")
    parser.add_argument("--work-dir", type=Path, default=Path(tempfile.gettempdir()), help="where the data goes")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="the other checkout, for compare, compare_clusters, instructions and land",
    )
    parser.add_argument("--rows", default="", metavar="A,B", help="only these rows of kafka; the others stay as stored")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar is missed")
    args = parser.parse_args(arguments)
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    options = Options(
        seconds=args.seconds or (0.3 if args.quick else 0.7),
        rounds=args.rounds or (1 if args.quick else 5),
        quick=args.quick,
        work_dir=args.work_dir,
        against=args.against,
        rows=tuple(filter(None, args.rows.split(","))),
    )
    every = [name for name in NAMES if not name.startswith("compare") or args.against is not None]
    return args.names or every, options, args.strict


def main() -> int:
    names, options, strict = parse(sys.argv[1:])
    options.work_dir.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 140)
    missed = []
    for name in names:
        started = time.perf_counter()
        report: Report = importlib.import_module(f"benchmarks.{name}").run(options)
        show(report, console)
        store(report, options)
        console.print(f"{name} took {time.perf_counter() - started:.0f} s\n", style="dim")
        missed += [f"{name}: {check.name}" for check in report.checks if not check.passed]
    console.print(f"JSON and plots are in {RESULTS}")
    if missed:
        console.print("[bold red]missed:[/] " + "; ".join(missed))
    return 1 if missed and strict else 0


if __name__ == "__main__":
    sys.exit(main())
