"""`skylog pipeline`: runs the data pipeline on Spark, with a command per job. Spark is imported when a job starts."""

from __future__ import annotations

import typer

from skylog.cli.pipelines import (
    audit,
    feed,
    land,
    materialize,
    monitoring,
    newsletters,
    recommendations,
    rekey,
    rising,
    search,
    security,
    spam,
    visits,
)
from skylog.cli.pipelines.new import new
from skylog.cli.pipelines.own_job import COMMAND, JobGroup, own_job
from skylog.cli.pipelines.send import send
from skylog.cli.pipelines.table import app as table

app = typer.Typer(
    help="""Run the data pipeline on Spark. Requires pip install 'skylog\\[spark]'.

    [bold]skylog pipeline run land page_views --warehouse warehouse --every 5m[/]
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
run = typer.Typer(
    cls=JobGroup,
    help="""Run a job: continuously, with --once, or with --every at intervals. MODULE:NAME is a job of your own.

    [bold]skylog pipeline run visits page_views --once[/]

    [bold]skylog pipeline run shop.jobs:spam --every 1h[/]
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.add_typer(run, name="run")
app.command("new")(new)
app.command("send")(send)
app.add_typer(table, name="table")
run.command("audit")(audit.audit)
run.command(COMMAND)(own_job)
run.command("feed")(feed.feed)
run.command("land")(land.land)
run.command("materialize")(materialize.materialize)
run.command("monitoring")(monitoring.monitoring)
run.command("newsletters")(newsletters.newsletters)
run.command("recommendations")(recommendations.recommendations)
run.command("rekey")(rekey.rekey)
run.command("rising")(rising.rising)
run.command("search")(search.search)
run.command("security")(security.security)
run.command("spam")(spam.spam)
run.command("visits")(visits.visits)
