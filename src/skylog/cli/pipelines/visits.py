"""`skylog pipeline run visits`: visits per organisation and day into a database."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from skylog.cli.pipelines.running import Every, Master, Once, SourceOptions, SparkConf, Work, running


def visits(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics of events.", show_default=False)],
    database: Annotated[
        str,
        typer.Option(
            "--database",
            metavar="URL",
            envvar="SKYLOG_DATABASE",
            help="sqlite:///path, postgresql://host/database or mongodb://host/database.",
        ),
    ] = "sqlite:///visits.db",
    table: Annotated[
        str, typer.Option("--table", help="The table of the counts; its offsets are beside it.")
    ] = "visits",
    event: Annotated[
        str, typer.Option("--event", metavar="NAME", help="The events that are visits; * is all of them.")
    ] = "page.view",
    organisation: Annotated[
        str | None,
        typer.Option(
            "--organisation",
            metavar="FIELD",
            help="The event's field that says whose visit it is.",
            show_default="attributes.organisation or attributes.org_id",
        ),
    ] = None,
    group: Annotated[str, typer.Option("--group", help="The consumer group that shows the progress.")] = "visits",
    max_offsets: Annotated[
        int | None,
        typer.Option("--max-offsets", min=1, help="In one batch, at most.", show_default="all that is there"),
    ] = None,
    option: SourceOptions = None,
    once: Once = False,
    every: Every = None,
    master: Master = "local[*]",
    conf: SparkConf = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Count visits per organisation and day in a database, each record once, whatever dies on the way.

    A table goes on where its offsets end. To count again from the beginning, name another table.

    [bold]skylog pipeline run visits page_views --database sqlite:///visits.db[/]
    """
    if organisation is not None and not all(organisation.split(".")):
        raise typer.BadParameter(
            f"expected such as attributes.org_id, got '{organisation}'", param_hint="--organisation"
        )
    options = dict(parse_pairs(option, "--option"))
    work = Work(bootstrap, topics, f"{_without_password(database)} table {table}", options)
    with running("visits", once=once, every=every, master=master, conf=conf, as_json=json, work=work) as run:
        from skylog.spark.jobs.increments import Increments
        from skylog.spark.jobs.runner import run_increments
        from skylog.spark.jobs.visits import ORGANISATION_FIELDS, Visits, open_store

        store = open_store(database, table)
        fields = ORGANISATION_FIELDS if organisation is None else (organisation,)
        job = Visits(store, topics, event=event, organisation_fields=fields)
        increments = Increments(bootstrap, topics, max_offsets=max_offsets, group=group, options=options)
        try:
            run_increments(job, increments, run.spark, run.schedule, run.stop, run.report)
        finally:
            store.close()


def _without_password(database: str) -> str:
    """An address that may be shown to everybody."""
    try:
        address = urlsplit(database)
        return f"{address.scheme}://{address.hostname or ''}{address.path}"
    except ValueError:
        return "a database"
