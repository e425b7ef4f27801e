"""`skylog pipeline run materialize`: a changelog topic as a table, now or as it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs, parse_when
from skylog.cli.output import fail, note
from skylog.cli.pipelines.running import Every, Master, Once, SourceOptions, SparkConf, Work, checked_directory, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def materialize(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The changelog.", show_default=False)],
    table: Annotated[
        Path,
        typer.Option(
            "--table", metavar="DIR", help="The table's directory.", show_default=False, callback=checked_directory
        ),
    ],
    schema: Annotated[
        str,
        typer.Option("--schema", metavar="DDL", help="The fields of a row: 'id INT, name STRING'.", show_default=False),
    ],
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="WHEN",
            help='Write the table as it was, into --into, and end: at a time, or at offsets: {"topic": {"0": 23}}.',
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="DIR",
            help="With --as-of: a directory that is not there yet.",
            callback=checked_directory,
        ),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Keep all changes beside the table, for --as-of.")
    ] = True,
    group: Annotated[str, typer.Option("--group", help="The consumer group that shows the progress.")] = "materialize",
    max_offsets: Annotated[
        int | None, typer.Option("--max-offsets", min=1, help="In one batch, at most.", show_default="all there are")
    ] = None,
    option: SourceOptions = None,
    once: Once = False,
    every: Every = None,
    master: Master = "local[*]",
    conf: SparkConf = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Keep a table at the current rows of a changelog: the last value of each key, without those that were deleted.

    [bold]skylog pipeline run materialize users --schema 'id INT, name STRING' --table tables/users[/]
    """
    if (as_of is None) != (into is None):
        raise typer.BadParameter("--as-of and --into go together", param_hint="--as-of")
    once = once or as_of is not None
    options = dict(parse_pairs(option, "--option"))
    work = Work(bootstrap, [topic], (into or table).absolute(), options)
    with running("materialize", once=once, every=every, master=master, conf=conf, as_json=json, work=work) as run:
        from skylog.client import Admin
        from skylog.spark.jobs.increments import Increments
        from skylog.spark.jobs.materialize.job import Materialize
        from skylog.spark.jobs.runner import run_increments

        admin = Admin(bootstrap)
        admin.describe_topic(topic)
        with Materialize.open_table(table, history=history) as versions:
            job = Materialize(versions, topic, schema, admin)
            increments = Increments(bootstrap, [topic], max_offsets=max_offsets, group=group, options=options)
            run_increments(job, increments, run.spark, run.schedule, run.stop, run.report)
        if as_of is not None and into is not None:
            if run.stop.is_set():
                fail(f"stopped before the table was up to date: {into} was not written")
            _write_past(run.spark, table, as_of, into)


def _write_past(spark: SparkSession, table: Path, when: str, into: Path) -> None:
    from skylog.spark.jobs.materialize.past import as_of, offsets_at
    from skylog.spark.jobs.parquet import write_parquet
    from skylog.spark.jobs.runner import plain_errors
    from skylog.spark.reading.positions import parse_offsets

    with plain_errors("materialize"):
        if when.lstrip().startswith("{"):
            offsets = parse_offsets("--as-of", when)
        else:
            offsets = offsets_at(spark, table, parse_when(when, time.time_ns() // 1_000_000, "--as-of"))
        write_parquet(as_of(spark, table, offsets), into)
    places = ", ".join(f"{key} at {offset}" for key, offset in sorted(offsets.items()))
    note(f"wrote {into}: {places}")
