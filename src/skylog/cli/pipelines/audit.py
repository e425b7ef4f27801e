"""`skylog pipeline run audit`: the comparison of `skylog audit`, computed by Spark for audit topics of any length."""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skylog.cli.audit import (
    FOREVER_MS,
    NOT_BALANCED,
    NOTHING_TO_JUDGE,
    Grace,
    Groups,
    Tiers,
    Topics,
    Window,
    WindowSelection,
    balance_object,
    exit_code,
    print_topic,
)
from skylog.cli.options import parse_duration_ms, parse_when
from skylog.cli.pipelines.job_options import RunOptions, with_options
from skylog.cli.pipelines.running import checked_table, run_job
from skylog.printable import iso_time
from skylog.terminal import fail, note, print_json, write

if TYPE_CHECKING:
    from skylog.pipeline.jobs.audit.books import BalanceResult
    from skylog.pipeline.runner import Progress

_CONCLUSIONS: Final = {0: "balanced", NOT_BALANCED: "not balanced", NOTHING_TO_JUDGE: "nothing to judge"}

From = Annotated[
    str | None, typer.Option("--from", metavar="WHEN", help="Start at a time: 2024-05-01T12:00, or 30d (ago).")
]
To = Annotated[str | None, typer.Option("--to", metavar="WHEN", help="Only windows that start before a time.")]
Last = Annotated[
    str | None,
    typer.Option("--last", metavar="TIME", help="A sliding period up to now, such as 24h. Not with --from."),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="PATH",
        help="Write the result to a Delta table, replacing the rows of the previous one.",
        callback=checked_table,
    ),
]
ReportFile = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Write an HTML report.")]


@with_options
def audit(
    topic: Topics = None,
    group: Groups = None,
    since: From = None,
    until: To = None,
    last: Last = None,
    grace: Grace = "2m",
    window: Window = "60s",
    tiers: Tiers = None,
    with_bytes: Annotated[bool, typer.Option("--bytes", help="Also show the number of bytes.")] = False,
    into: Into = None,
    report: ReportFile = None,
    *,
    options: RunOptions,
) -> None:
    """Compare the counts of produced, stored, consumed and landed messages over a period.

    The exit code is 0 if the counts balance, 1 if they do not, 2 if there is nothing to judge. Without --once it is
    that of the last run.

    [bold]skylog pipeline run audit --once --from 30d --window 1h --report audit.html[/]

    [bold]skylog pipeline run audit --every 1h --last 24h --into warehouse/audit[/]
    """
    if last is not None and (since is not None or until is not None):
        raise typer.BadParameter("cannot be combined with --from or --to", param_hint="--last")
    if report is not None and not report.parent.is_dir():
        raise typer.BadParameter(f"directory '{report.parent}' does not exist", param_hint="--report")
    started_ms = _now_ms()
    last_ms = None if last is None else parse_duration_ms(last, "--last")
    since_ms = 0 if since is None else parse_when(since, started_ms, "--from")
    until_ms = FOREVER_MS if until is None else parse_when(until, started_ms, "--to")
    selection = WindowSelection.parse(topic, group, None, None, grace, window, tiers)
    cluster = options.cluster()
    from skylog.audit import NoAuditTopicError
    from skylog.pipeline.jobs.audit.balance import Period
    from skylog.pipeline.jobs.audit.books import BalanceQuery
    from skylog.pipeline.jobs.audit.job import AuditJob

    # The job does not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    codes = [NOTHING_TO_JUDGE]

    def query_at(now_ms: int) -> BalanceQuery:
        period = Period(since_ms, until_ms) if last_ms is None else Period(max(now_ms - last_ms, 0), now_ms)
        return BalanceQuery(
            period, selection.window_ms, selection.grace_ms, selection.topics, selection.groups, selection.required
        )

    def tell(answer: BalanceResult, now_ms: int) -> None:
        codes.append(_output(answer, now_ms, as_json=options.json, with_bytes=with_bytes, report=report))

    def show(progress: Progress) -> None:
        note(f"audit: {progress.records:,} messages of the audit topic in {progress.seconds:.1f} s")

    try:
        run_job(AuditJob(query_at, tell, into), cluster, options, show)
    except NoAuditTopicError as error:
        fail(str(error), NOTHING_TO_JUDGE)
    raise typer.Exit(codes[-1])


def _output(answer: BalanceResult, now_ms: int, *, as_json: bool, with_bytes: bool, report: Path | None) -> int:
    """Write the result to all requested outputs, one topic at a time. Returns the exit code."""
    from skylog.pipeline.jobs.audit.html_page import HtmlPage

    page, objects, codes, verdicts = HtmlPage(), list[Any](), set[int](), Counter[str]()
    for name, windows in groupby(answer.balances(), key=lambda balance: balance.topic):
        rows = list(windows)
        codes.add(exit_code(rows))
        verdicts.update(row.verdict.value for row in rows)
        page.add(name, rows)
        if as_json:
            objects += map(balance_object, rows)
        else:
            print_topic(name, rows, with_bytes=with_bytes)
    code = next((each for each in (NOT_BALANCED, 0) if each in codes), NOTHING_TO_JUDGE)
    notes = _notes(answer)
    if as_json:
        print_json(objects)
    else:
        windows_word = "window" if verdicts.total() == 1 else "windows"
        counts = [f"{verdicts.total():,} {windows_word}", *(f"{count:,} {name}" for name, count in verdicts.items())]
        write(f"{_CONCLUSIONS[code]}: {', '.join(counts)}\n")
    for text in notes:
        note(text)
    sys.stdout.flush()  # the reader of a pipe gets the output before the next run
    if report is not None:
        page.write(report, _CONCLUSIONS[code], notes, now_ms)
    return code


def _notes(answer: BalanceResult) -> list[str]:
    notes = []
    if answer.foreign_count:
        notes.append(f"{answer.foreign_count:,} messages of the audit topic are not reports and were skipped")
    if answer.begins_ms:
        begins = iso_time(answer.begins_ms)
        notes.append(f"the audit topic begins at {begins}: earlier windows were skipped")
    return notes


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
