"""`skylog pipeline run visits`: counts visits per organisation and day in a database."""

from __future__ import annotations

from typing import Annotated

import typer

from skylog.cli.pipelines.job_options import JobOptions, SourceTopics, with_options
from skylog.cli.pipelines.running import run_job


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
    from skylog.pipeline.jobs.visits import ORGANISATION_FIELDS, visits_job

    fields = ORGANISATION_FIELDS if organisation is None else (organisation,)
    run_job(visits_job(topics, database, table, event=event, organisation_fields=fields), cluster, options)
