"""`skylog pipeline run audit`: what `skylog audit` says, found by Spark, for audit topics of any length."""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from skylog.audit import AUDIT_TOPIC
from skylog.cli.audit import (
    FOREVER_MS,
    NOT_BALANCED,
    NOTHING_TO_JUDGE,
    Grace,
    Groups,
    Selection,
    Tiers,
    Topics,
    Window,
    balance_object,
    exit_code,
    print_topic,
)
from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_duration_ms, parse_when
from skylog.cli.output import fail, note, print_json, write
from skylog.cli.pipelines.running import Every, Master, Once, SparkConf, Work, checked_directory, running
from skylog.printable import iso_time

if TYPE_CHECKING:
    from skylog.spark.jobs.audit.books import Answer

_PAUSE_S: Final = 60.0  # between two looks, if nothing is said; windows are as long
_CONCLUSIONS: Final = {0: "balanced", NOT_BALANCED: "not balanced", NOTHING_TO_JUDGE: "nothing to judge"}

From = Annotated[
    str | None, typer.Option("--from", metavar="WHEN", help="From a time on: 2024-05-01T12:00, or 30d (ago).")
]
To = Annotated[str | None, typer.Option("--to", metavar="WHEN", help="Only windows that begin before a time.")]
Last = Annotated[
    str | None,
    typer.Option("--last", metavar="TIME", help="The time up to now, which moves along: 24h. Not with --from."),
]
Into = Annotated[
    Path | None,
    typer.Option(
        "--into",
        metavar="DIR",
        help="Write the balance as a Parquet table, replacing the last one.",
        callback=checked_directory,
    ),
]
ReportFile = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Write a page for browsers.")]


def audit(
    topic: Topics = None,
    group: Groups = None,
    since: From = None,
    until: To = None,
    last: Last = None,
    grace: Grace = "2m",
    window: Window = "60s",
    tiers: Tiers = None,
    with_bytes: Annotated[bool, typer.Option("--bytes", help="Show beside each number how many bytes it is.")] = False,
    into: Into = None,
    report: ReportFile = None,
    once: Once = False,
    every: Every = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    master: Master = "local[*]",
    conf: SparkConf = None,
) -> None:
    """Balance what was produced, stored, consumed and landed over a period, and report it.

    The exit code is 0 if the books balance, 1 if they don't, 2 if there is nothing to judge; of the last time that they
    were looked at, unless it was --once.

    [bold]skylog pipeline run audit --once --from 30d --window 1h --report audit.html[/]

    [bold]skylog pipeline run audit --every 1h --last 24h --into warehouse/audit[/]
    """
    if last is not None and (since is not None or until is not None):
        raise typer.BadParameter("--last is up to now, and excludes --from and --to", param_hint="--last")
    if report is not None and not report.parent.is_dir():
        raise typer.BadParameter(f"there is no directory '{report.parent}'", param_hint="--report")
    started_ms = _now_ms()
    last_ms = None if last is None else parse_duration_ms(last, "--last")
    since_ms = 0 if since is None else parse_when(since, started_ms, "--from")
    until_ms = FOREVER_MS if until is None else parse_when(until, started_ms, "--to")
    asked = Selection.parse(topic, group, None, None, grace, window, tiers)
    work = Work(bootstrap, [AUDIT_TOPIC], None if into is None else into.absolute())
    with running("audit", once=once, every=every, master=master, conf=conf, as_json=json, work=work) as run:
        from skylog.audit import NoAuditTopicError
        from skylog.client import BrokerUnreachableError
        from skylog.spark.jobs.audit.balance import Period
        from skylog.spark.jobs.audit.books import Question, answered, check_table
        from skylog.spark.jobs.runner import Progress, plain_errors

        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)  # it is not used
        if into is not None:
            check_table(into)
        code, looks = NOTHING_TO_JUDGE, 0

        def look() -> None:
            nonlocal code, looks
            now_ms, began = _now_ms(), time.monotonic()
            period = Period(since_ms, until_ms) if last_ms is None else Period(max(now_ms - last_ms, 0), now_ms)
            question = Question(period, asked.window_ms, asked.grace_ms, asked.topics, asked.groups, asked.required)
            try:
                with answered(run.spark, bootstrap, question, now_ms) as answer:
                    code = _tell(answer, now_ms, as_json=json, with_bytes=with_bytes, into=into, report=report)
                    messages = answer.message_count
            except (BrokerUnreachableError, NoAuditTopicError) as error:
                if once:
                    fail(str(error), NOTHING_TO_JUDGE if isinstance(error, NoAuditTopicError) else 1)
                note(f"audit: {error}")
                return
            took_s = time.monotonic() - began
            run.tell(Progress("audit", looks, messages, took_s, -1))
            looks += 1
            note(f"audit: {messages:,} messages of the audit topic in {took_s:.1f} s")

        schedule = run.schedule if run.schedule.has_rounds else replace(run.schedule, every_s=_PAUSE_S)
        with plain_errors("audit"):
            for _ in schedule.rounds(run.stop):
                look()
    raise typer.Exit(code)


def _tell(
    answer: Answer, now_ms: int, *, as_json: bool, with_bytes: bool, into: Path | None, report: Path | None
) -> int:
    """Put the answer wherever it is wanted, a topic at a time; the exit code that it means."""
    from skylog.spark.jobs.audit.html_page import HtmlPage

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
    facts = _oddities(answer)
    if as_json:
        print_json(objects)
    else:
        windows_word = "window" if verdicts.total() == 1 else "windows"
        counts = [f"{verdicts.total():,} {windows_word}", *(f"{count:,} {name}" for name, count in verdicts.items())]
        write(f"{_CONCLUSIONS[code]}: {', '.join(counts)}\n")
    for fact in facts:
        note(fact)
    sys.stdout.flush()  # a reader of a pipe need not wait for the next time
    if into is not None:
        answer.save(into)
    if report is not None:
        page.write(report, _CONCLUSIONS[code], facts, now_ms)
    return code


def _oddities(answer: Answer) -> list[str]:
    facts = []
    if answer.foreign_count:
        facts.append(f"{answer.foreign_count:,} messages of the audit topic are no reports and were left out")
    if answer.begins_ms:
        begins = iso_time(answer.begins_ms)
        facts.append(f"the audit topic begins at {begins}: windows from before that were left out")
    return facts


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
