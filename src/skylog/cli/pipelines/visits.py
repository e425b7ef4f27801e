"""`skylog pipeline run visits`: counts visits per organisation and day in a database."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import typer

from skylog.cli.pipelines.job_options import JobOptions, SourceTopics, with_options
from skylog.cli.pipelines.running import Work, running


@with_options
def visits(
    topics: SourceTopics,
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
        str, typer.Option("--table", help="The table of the counts; its offsets are stored beside it.")
    ] = "visits",
    event: Annotated[
        str, typer.Option("--event", metavar="NAME", help="The name of the events to count as visits; * counts all.")
    ] = "page.view",
    organisation: Annotated[
        str | None,
        typer.Option(
            "--organisation",
            metavar="FIELD",
            help="The event field with the organisation.",
            show_default="attributes.organisation or attributes.org_id",
        ),
    ] = None,
    *,
    options: JobOptions,
) -> None:
    """Count visits per organisation and day in a database, each record exactly once, even after crashes.

    A table continues where its offsets end. To count from the beginning, choose another table.

    [bold]skylog pipeline run visits page_views --database sqlite:///visits.db[/]
    """
    if organisation is not None and not all(organisation.split(".")):
        raise typer.BadParameter(
            f"expected a form such as attributes.org_id, got '{organisation}'", param_hint="--organisation"
        )
    cluster = options.cluster()
    work = Work(cluster, topics, f"{_without_password(database)} table {table}")
    with running("visits", options, work) as run:
        from skylog.pipeline.increments import Increments
        from skylog.pipeline.jobs.visits import ORGANISATION_FIELDS, Visits, open_store
        from skylog.pipeline.runner import run_increments

        store = open_store(database, table)
        fields = ORGANISATION_FIELDS if organisation is None else (organisation,)
        job = Visits(store, topics, event=event, organisation_fields=fields)
        increments = Increments(cluster, topics, max_offsets=options.max_offsets, group=options.group or "visits")
        try:
            run_increments(job, increments, run.spark, run.schedule, run.stop, run.report)
        finally:
            store.close()


def _without_password(database: str) -> str:
    """Return the URL without user and password."""
    try:
        address = urlsplit(database)
        return f"{address.scheme}://{address.hostname or ''}{address.path}"
    except ValueError:
        return "a database"
