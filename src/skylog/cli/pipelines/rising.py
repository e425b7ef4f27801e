"""`skylog pipeline run rising`: the pages that are rising, as a topic and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_duration_ms, parse_pairs
from skylog.cli.pipelines.running import Every, Master, Once, SourceOptions, SparkConf, Work, checked_directory, running


def rising(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics of events.", show_default=False)],
    into: Annotated[
        str, typer.Option("--into", metavar="TOPIC", help="The topic of the ranking; made, compacted, if missing.")
    ] = "rising_pages",
    table: Annotated[
        Path,
        typer.Option(
            "--table",
            metavar="DIR",
            help="The table of the ranking; also keeps the counts.",
            callback=checked_directory,
        ),
    ] = Path("rising"),
    page: Annotated[
        str | None,
        typer.Option(
            "--page",
            metavar="EXPR",
            help="The page: an expression of Spark SQL over the event's fields.",
            show_default="coalesce(attributes.page, attributes.path)",
        ),
    ] = None,
    event: Annotated[str, typer.Option("--event", metavar="NAME", help="The events that are views.")] = "page.view",
    period: Annotated[str, typer.Option("--period", metavar="TIME", help="What is looked at, back from now.")] = "24h",
    recent: Annotated[
        str, typer.Option("--recent", metavar="TIME", help="Its last part, which is compared with what went before.")
    ] = "1h",
    bucket: Annotated[str, typer.Option("--bucket", metavar="TIME", help="Views are counted by this much.")] = "10m",
    top: Annotated[int, typer.Option("--top", min=1, help="How many pages.")] = 100,
    smoothing: Annotated[
        float, typer.Option("--smoothing", min=0.001, help="The higher, the less pages of few views rise.")
    ] = 1.0,
    group: Annotated[str, typer.Option("--group", help="The consumer group that shows the progress.")] = "rising",
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
    """Rank the pages whose views have risen over the last 24 hours, by the time of the events.

    [bold]skylog pipeline run rising events --into rising_pages --table rising[/]
    """
    lengths_ms = [
        parse_duration_ms(text, option)
        for text, option in ((period, "--period"), (recent, "--recent"), (bucket, "--bucket"))
    ]
    options = dict(parse_pairs(option, "--option"))
    work = Work(bootstrap, topics, into, options)
    with running("rising", once=once, every=every, master=master, conf=conf, as_json=json, work=work) as run:
        from skylog.spark.jobs.increments import Increments
        from skylog.spark.jobs.rising.job import RankingPublisher, Rising
        from skylog.spark.jobs.rising.ranking import PAGE, Period
        from skylog.spark.jobs.runner import run_increments
        from skylog.spark.jobs.versioned_table import VersionedTable

        period_of_views = Period(*lengths_ms)
        with VersionedTable(table) as versions, RankingPublisher(bootstrap, into) as publisher:
            job = Rising(
                versions,
                period=period_of_views,
                page=page or PAGE,
                event=event,
                top=top,
                smoothing=smoothing,
                publisher=publisher,
            )
            increments = Increments(bootstrap, topics, max_offsets=max_offsets, group=group, options=options)
            run_increments(job, increments, run.spark, run.schedule, run.stop, run.report)
