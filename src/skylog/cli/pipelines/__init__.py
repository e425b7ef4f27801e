"""`skylog pipeline`: the data pipeline on Spark, a command per job. Spark is loaded when a job starts, not before."""

from __future__ import annotations

import typer

from skylog.cli.pipelines import audit, land, materialize, rekey, rising, visits

app = typer.Typer(
    help="Run the data pipeline on Spark, which comes with pip install 'skylog\\[spark]'.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
run = typer.Typer(help="Run a job: once, at intervals, or, if nothing is said, continuously.", no_args_is_help=True)
app.add_typer(run, name="run")
run.command("audit")(audit.audit)
run.command("land")(land.land)
run.command("materialize")(materialize.materialize)
run.command("rekey")(rekey.rekey)
run.command("rising")(rising.rising)
run.command("visits")(visits.visits)
