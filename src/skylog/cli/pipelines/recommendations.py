"""`skylog pipeline run recommendations`: finds the pages that visitors see together."""

from __future__ import annotations

from typing import Annotated

import typer

from skylog.cli.options import parse_duration_ms
from skylog.cli.pipelines.job_options import JobOptions, SourceTopics, with_options
from skylog.cli.pipelines.running import checked_table, run_job


@with_options
def recommendations(
    topics: SourceTopics,
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="PATH",
            help="The Delta table: a directory, or s3://bucket/path.",
            callback=checked_table,
        ),
    ] = "recommendations",
    event: Annotated[
        str, typer.Option("--event", metavar="NAME", help="The name of the events that are views.")
    ] = "page.view",
    page: Annotated[
        str, typer.Option("--page", metavar="EXPR", help="The page: a Spark SQL expression over the event's fields.")
    ] = "coalesce(attributes.page, attributes.path)",
    visitor: Annotated[
        str, typer.Option("--visitor", metavar="EXPR", help="The visit or user whose pages are seen together.")
    ] = "coalesce(attributes.session, user.id)",
    within: Annotated[
        str, typer.Option("--within", metavar="TIME", help="How far apart pages are that are seen together.")
    ] = "30m",
    top: Annotated[int, typer.Option("--top", min=1, help="Number of recommendations for each page.")] = 10,
    least: Annotated[
        int, typer.Option("--least", min=1, help="Recommend pages that this many visits have seen together.")
    ] = 2,
    *,
    options: JobOptions,
) -> None:
    """Find the pages that visitors see together, and the best of them for each page. Each visit counts exactly once.

    A row of the table has a page, its visits, and its recommendations, best first.

    [bold]skylog pipeline run recommendations page_views --table recommendations --every 10m[/]
    """
    within_ms = parse_duration_ms(within, "--within")
    cluster = options.cluster()
    from skylog.pipeline.jobs.recommendations import recommendations_job

    job = recommendations_job(
        cluster, topics, table, event=event, page=page, visitor=visitor, within_ms=within_ms, top=top, least=least
    )
    run_job(job, cluster, options)
