"""`skylog pipeline run materialize`: maintains a table of a changelog topic, and writes past versions of it.

The table is a Delta table, or one of a database, which has no past versions.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from skylog.cli.options import parse_when
from skylog.cli.pipelines.job_options import JobOptions, with_options
from skylog.cli.pipelines.running import checked_table, run_in, running
from skylog.terminal import fail, note

_VERSION: Final = re.compile(r"v(\d+)")
_DATABASE_OFFSETS: Final = 100_000  # rows for a database go through the memory of the driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@with_options
def materialize(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The changelog topic.", show_default=False)],
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="PATH",
            help="The Delta table: a directory, or s3://bucket/path. With --database: the name of the table.",
            show_default=False,
            callback=checked_table,
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
            help='Write the table as of a time, a version (v7) or offsets ({"topic": {"0": 23}}) to --into, and exit.',
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="PATH", help="With --as-of: the Delta table to write.", callback=checked_table),
    ] = None,
    history: Annotated[bool, typer.Option("--history/--no-history", help="Keep all changes for --as-of.")] = True,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="Maintain a table of this database instead: postgresql://host/database or sqlite:///path.",
        ),
    ] = None,
    envelope: Annotated[
        str, typer.Option("--envelope", metavar="plain|debezium", help="Values: plain rows, or Debezium's envelope.")
    ] = "plain",
    *,
    options: JobOptions,
) -> None:
    """Maintain a table with the current rows of a changelog: the last value of each key, without deleted keys.

    [bold]skylog pipeline run materialize users --schema 'id INT, name STRING' --table tables/users[/]
    """
    if (as_of is None) != (into is None):
        raise typer.BadParameter("--as-of and --into require each other", param_hint="--as-of")
    if as_of is not None and database is not None:
        raise typer.BadParameter("a database has no earlier states; use a Delta table", param_hint="--as-of")
    if envelope not in ("plain", "debezium"):
        raise typer.BadParameter(f"expected plain or debezium, got '{envelope}'", param_hint="--envelope")
    options = replace(options, once=options.once or as_of is not None)
    cluster = options.cluster()
    from skylog.pipeline.jobs.materialize import Envelope, materialize_into_database, materialize_job

    form = Envelope(envelope)
    if database is None:
        job = materialize_job(cluster, topic, table, schema, history=history, envelope=form)
    else:
        options = replace(options, max_offsets=options.max_offsets or _DATABASE_OFFSETS)
        job = materialize_into_database(topic, database, table, schema, envelope=form)
    with running(job, cluster, options) as run:
        cluster.admin().describe_topic(topic)
        run_in(run, job, cluster, options)
        if as_of is not None and into is not None:
            if run.stop.is_set():
                fail(f"stopped before the table was up to date; {into} was not written")
            _write_past(run.spark, table, topic, as_of, into)


def _write_past(spark: SparkSession, table: str, topic: str, when: str, into: str) -> None:
    from skylog.pipeline.jobs.materialize.past import as_of, offsets_at
    from skylog.pipeline.runner import plain_errors
    from skylog.pipeline.table import Table
    from skylog.spark.reading.positions import parse_offsets

    with plain_errors("materialize"):
        if version := _VERSION.fullmatch(when):
            Table(into).open().replace(Table(table).read(spark, version=int(version[1])), {}, {})
            note(f"wrote {into}: version {version[1]}")
            return
        if when.lstrip().startswith("{"):
            offsets = parse_offsets("--as-of", when)
        else:
            offsets = offsets_at(spark, table, topic, parse_when(when, time.time_ns() // 1_000_000, "--as-of"))
        Table(into).open().replace(as_of(spark, table, offsets), {}, {})
    positions = ", ".join(f"{key} at {offset}" for key, offset in sorted(offsets.items()))
    note(f"wrote {into}: {positions}")
