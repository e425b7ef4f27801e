"""The result of a benchmark and its output: tables on the terminal, JSON and plots in `benchmarks/results`.

Does not depend on what is measured. A figure with a bar is a `Check`. Its bar is drawn into the plots, and pass or fail
is printed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True)
class Options:
    """How much time a run may take. Each figure is measured `rounds` times, and the median is reported.

    With `rows`, a benchmark that has groups of rows measures only these, and keeps its stored figures of the others.
    """

    seconds: float
    rounds: int
    quick: bool
    work_dir: Path
    against: Path | None = None
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """One column of a table: the key in the rows, the heading, and the format of its numbers."""

    key: str
    heading: str
    form: str = "{}"

    def cell(self, row: dict[str, Any]) -> str:
        value = row.get(self.key)
        return "" if value is None else self.form.format(value)


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Check:
    """A figure with its bar: at least `bar`, or with `at_most` at most."""

    name: str
    value: float
    bar: float
    at_most: bool = False

    @property
    def passed(self) -> bool:
        return self.value <= self.bar if self.at_most else self.value >= self.bar


@dataclass(frozen=True)
class Plot:
    """A plot of grouped columns, one group per label. `bars` are the bars, one per group or one for all."""

    title: str
    unit: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float]]
    bars: Sequence[float] = ()
    logarithmic: bool = False
    lying: bool = False
    """One figure per label, drawn from left to right: room for many long labels."""


@dataclass
class Report:
    """The result of one benchmark."""

    name: str
    title: str
    tables: list[Table] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    """Stored as they are, for a later run that measures other rows."""


def progress(text: str) -> None:
    """Say what is being measured."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def stored_figures(name: str) -> dict[str, Any]:
    """Return the figures that the last run of a benchmark has stored."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()).get("figures", {}) if path.exists() else {}
    return found


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def show(report: Report, console: Console) -> None:
    console.rule(f"[bold]{report.name}[/]: {report.title}")
    for table in report.tables:
        console.print(_rich_table(table))
    if report.checks:
        console.print(_rich_checks(report.checks))
    for note in report.notes:
        console.print(f"• {note}", style="dim")


def _rich_table(table: Table) -> RichTable:
    rich = RichTable(title=table.title, title_justify="left")
    for column in table.columns:
        rich.add_column(column.heading, justify="left" if column.form == "{}" else "right", no_wrap=column.form == "{}")
    for row in table.rows:
        rich.add_row(*(column.cell(row) for column in table.columns))
    return rich


def _rich_checks(checks: Sequence[Check]) -> RichTable:
    rich = RichTable(title="bars", title_justify="left")
    for heading in ("what", "figure", "bar", ""):
        rich.add_column(heading, justify="left" if heading in ("what", "") else "right")
    for check in checks:
        verdict = "[green]pass[/]" if check.passed else "[bold red]FAIL[/]"
        rich.add_row(check.name, f"{check.value:.3g}", f"{'≤' if check.at_most else '≥'} {check.bar:g}", verdict)
    return rich


def store(report: Report, options: Options) -> None:
    """Write `NAME.json` and one PNG per plot; older results of the same benchmark are replaced."""
    RESULTS.mkdir(exist_ok=True)
    content = {
        "name": report.name,
        "title": report.title,
        "machine": machine(),
        "options": {"seconds": options.seconds, "rounds": options.rounds, "quick": options.quick},
        "tables": [{"title": table.title, "rows": list(table.rows)} for table in report.tables],
        "checks": [asdict(check) | {"passed": check.passed} for check in report.checks],
        "notes": report.notes,
        "figures": report.figures,
    }
    (RESULTS / f"{report.name}.json").write_text(json.dumps(content, indent=2) + "\n")
    for old in RESULTS.glob(f"{report.name}-*.png"):
        old.unlink()
    if report.plots and importlib.util.find_spec("matplotlib") is None:
        print("no plots: matplotlib is not installed (pip install 'skylog[bench]')", file=sys.stderr)
        return
    for number, plot in enumerate(report.plots, 1):
        _draw(plot, RESULTS / f"{report.name}-{number}.png")


def machine() -> dict[str, Any]:
    """Return the machine and the versions that the figures belong to."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": models[0].partition(": ")[2] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "revision": revision.stdout.strip(),
        "load_average": os.getloadavg()[0],
    }


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _draw(plot: Plot, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if plot.lying:
        _draw_lying(plot, path)
        return
    groups, width = len(plot.labels), 0.8 / len(plot.series)
    figure, axes = pyplot.subplots(figsize=(max(6.0, 0.9 * groups + 2.5), 4.5), layout="constrained")
    for number, (name, heights) in enumerate(plot.series.items()):
        places = [group - 0.4 + width * (number + 0.5) for group in range(groups)]
        drawn = axes.bar(places, heights, width, label=name)
        axes.bar_label(drawn, [_short(height) for height in heights], fontsize=7)
    bars = list(plot.bars) * groups if len(plot.bars) == 1 else list(plot.bars)
    for group, height in enumerate(bars):
        axes.hlines(height, group - 0.45, group + 0.45, colors="red", label="bar" if group == 0 else "_")
    axes.set_xticks(range(groups), plot.labels, fontsize=8)
    axes.set_ylabel(plot.unit)
    axes.set_title(plot.title)
    if plot.logarithmic:
        axes.set_yscale("log")
    if len(plot.series) > 1 or bars:
        figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_lying(plot: Plot, path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9.0, 0.27 * len(plot.labels) + 1.2), layout="constrained")
    for name, widths in plot.series.items():
        drawn = axes.barh(range(len(plot.labels)), widths, 0.7, label=name)
        axes.bar_label(drawn, [_short(width) for width in widths], fontsize=7, padding=2)
    for bar in plot.bars:
        axes.axvline(bar, color="red", linewidth=0.8)
    axes.set_yticks(range(len(plot.labels)), plot.labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.1, y=0.01)
    axes.set_xlabel(plot.unit)
    axes.set_title(plot.title)
    if plot.logarithmic:
        axes.set_xscale("log")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
