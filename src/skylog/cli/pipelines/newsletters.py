"""`skylog pipeline run newsletters`: writes a digest for each subscriber and day to a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from skylog.cli.options import parse_duration_ms
from skylog.cli.pipelines.job_options import IntoPartitions, StreamOptions, with_options
from skylog.cli.pipelines.running import run_job


@with_options
def newsletters(
    pages: Annotated[str, typer.Argument(metavar="PAGES", help="The topic of pages, by page.", show_default=False)],
    users: Annotated[
        str, typer.Option("--users", metavar="TOPIC", help="The topic of users, by user.", show_default=False)
    ],
    into: Annotated[
        str, typer.Option("--into", metavar="TOPIC", help="The topic of digests; created if it does not exist.")
    ] = "newsletters",
    partitions: IntoPartitions = None,
    clock: Annotated[
        list[str] | None,
        typer.Option(
            "--clock", metavar="TOPIC", help="A busy topic, whose records show that a day is over; can be repeated."
        ),
    ] = None,
    grace: Annotated[
        str, typer.Option("--grace", metavar="TIME", help="How long after its end a day waits for late pages.")
    ] = "1h",
    *,
    options: StreamOptions,
) -> None:
    """Write a digest for each subscriber and day to a topic, each once: the pages of the day in their sections.

    Reads pages (title, section and text, by page) and users (address, name and sections, by user). A day is over when
    a record from later than its end and the grace was read. Spark keeps the pages of open days in --state.

    [bold]skylog pipeline run newsletters pages --users users --clock page_views --every 10m[/]

    [bold]skylog pipeline send newsletters --from news@example.org[/] sends the digests by mail.
    """
    grace_ms = parse_duration_ms(grace, "--grace")
    cluster = options.cluster()
    from skylog.pipeline import Topic
    from skylog.pipeline.jobs.newsletters.job import newsletters_job

    into_topic, clocks = Topic(into, partitions), clock or ()
    job = newsletters_job(cluster, pages, users, into_topic, grace=f"{grace_ms} milliseconds", clocks=clocks)
    run_job(job, cluster, options)
