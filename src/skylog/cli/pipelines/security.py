"""`skylog pipeline run security`: flags bursts of failed logins."""

from __future__ import annotations

from typing import Annotated

import typer

from skylog.cli.options import parse_duration_ms
from skylog.cli.pipelines.job_options import SourceTopics, StreamOptions, with_options
from skylog.cli.pipelines.running import run_job


@with_options
def security(
    topics: SourceTopics,
    database: Annotated[
        str,
        typer.Option(
            "--database",
            metavar="URL",
            envvar="SKYLOG_DATABASE",
            help="sqlite:///path, postgresql://host/database or mongodb://host/database.",
        ),
    ] = "sqlite:///security.db",
    table: Annotated[str, typer.Option("--table", help="The table of flagged windows.")] = "suspicious_logins",
    failures: Annotated[
        int, typer.Option("--failures", min=1, help="Flag a window with at least this many failed logins.")
    ] = 10,
    window: Annotated[str, typer.Option("--window", metavar="TIME", help="The length of a window.")] = "5m",
    slide: Annotated[
        str, typer.Option("--slide", metavar="TIME", help="The time from one window to the next; they overlap.")
    ] = "1m",
    late: Annotated[
        str, typer.Option("--late", metavar="TIME", help="How late an event may be to be counted.")
    ] = "10m",
    *,
    options: StreamOptions,
) -> None:
    """Flag bursts of failed logins, by user and by address, in windows of event time.

    Reads the events user.login_failed and user.login (attributes name and address). A window is flagged as soon as it
    has enough failures, and its counts are updated while it is open. Spark keeps the counts of open windows in --state.

    [bold]skylog pipeline run security blog_log --failures 20 --window 1m --slide 10s[/]

    [bold]sqlite3 security.db 'SELECT * FROM suspicious_logins'[/] shows the result.
    """
    times_ms = [
        parse_duration_ms(text, name) for text, name in ((window, "--window"), (slide, "--slide"), (late, "--late"))
    ]
    cluster = options.cluster()
    from skylog.pipeline.jobs.security import LoginWindows, security_job

    run_job(security_job(topics, database, table, LoginWindows(failures, *times_ms)), cluster, options)
