"""`skylog pipeline run rising`: ranks the rising pages, as a topic and as a table."""

from __future__ import annotations

from typing import Annotated

import typer

from skylog.cli.options import parse_duration_ms
from skylog.cli.pipelines.job_options import JobOptions, SourceTopics, with_options
from skylog.cli.pipelines.running import checked_table, run_job


@with_options
def rising(
    topics: SourceTopics,
    into: Annotated[
        str,
        typer.Option(
            "--into", metavar="TOPIC", help="The topic of the ranking; created as compacted if it does not exist."
        ),
    ] = "rising_pages",
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="PATH",
            help="The Delta table of the ranking; the counts behind it are in PATH__counts.",
            callback=checked_table,
        ),
    ] = "rising",
    page: Annotated[
        str | None,
        typer.Option(
            "--page",
            metavar="EXPR",
            help="The page: a Spark SQL expression over the event's fields.",
            show_default="coalesce(attributes.page, attributes.path)",
        ),
    ] = None,
    event: Annotated[
        str, typer.Option("--event", metavar="NAME", help="The name of the events to count as views.")
    ] = "page.view",
    period: Annotated[str, typer.Option("--period", metavar="TIME", help="The period to analyse, up to now.")] = "24h",
    recent: Annotated[
        str,
        typer.Option("--recent", metavar="TIME", help="The last part of the period, which is compared with the rest."),
    ] = "1h",
    bucket: Annotated[
        str, typer.Option("--bucket", metavar="TIME", help="The interval in which views are counted.")
    ] = "10m",
    top: Annotated[int, typer.Option("--top", min=1, help="Number of pages in the ranking.")] = 100,
    smoothing: Annotated[
        float, typer.Option("--smoothing", min=0.001, help="Higher values rank pages with few views lower.")
    ] = 1.0,
    *,
    options: JobOptions,
) -> None:
    """Rank the pages whose views have risen over the last 24 hours, by event time.

    [bold]skylog pipeline run rising events --into rising_pages --table rising[/]
    """
    lengths_ms = [
        parse_duration_ms(text, name)
        for text, name in ((period, "--period"), (recent, "--recent"), (bucket, "--bucket"))
    ]
    cluster = options.cluster()
    from skylog.pipeline.jobs.rising import RankingPeriod, rising_job
    from skylog.pipeline.jobs.rising.ranking import PAGE

    job = rising_job(
        topics,
        table,
        cluster=cluster,
        into=into,
        period=RankingPeriod(*lengths_ms),
        page=page or PAGE,
        event=event,
        top=top,
        smoothing=smoothing,
    )
    run_job(job, cluster, options)
