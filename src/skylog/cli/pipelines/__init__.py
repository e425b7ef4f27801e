"""`skylog pipeline`: the data pipeline on Spark, a command per job. Spark is loaded when a job starts, not before."""

from __future__ import annotations

import typer

app = typer.Typer(help="Run the data pipeline on Spark: pip install 'skylog[spark]'.", no_args_is_help=True)
run = typer.Typer(help="Run a job: once, at intervals, or, if nothing is said, continuously.", no_args_is_help=True)
app.add_typer(run, name="run")
