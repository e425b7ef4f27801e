"""`skylog pipeline run rekey`: a topic once more under another key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from skylog.cli.output import note
from skylog.cli.pipelines.running import Every, Master, Once, SourceOptions, SparkConf, Work, checked_directory, running


def rekey(
    sources: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics to read.", show_default=False)],
    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="EXPR",
            help="The new key: an expression of Spark SQL over the event's fields, such as attributes.page, "
            "and the record's, such as record.partition.",
            show_default=False,
        ),
    ],
    into: Annotated[str, typer.Option("--into", metavar="TOPIC", help="The topic to write.", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, help="Of the topic, if it has to be made.", show_default="the broker's"),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="DDL", help="The values' fields.", show_default="those of skylog's events"),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Where progress is kept.",
            show_default="skylog-state/rekey-TOPIC-to-TOPIC",
            callback=checked_directory,
        ),
    ] = None,
    group: Annotated[str, typer.Option("--group", help="The consumer group that shows the progress.")] = "rekey",
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
    """Write a topic once more under another key: the same values, headers and times, each record once.

    [bold]skylog pipeline run rekey page_views --key attributes.page --into views_by_page --partitions 4[/]
    """
    if into in sources:
        raise typer.BadParameter("a topic cannot be rekeyed into itself", param_hint="--into")
    state = state or Path("skylog-state", f"rekey-{'-'.join(sources)}-to-{into}")
    options = dict(parse_pairs(option, "--option"))
    work = Work(bootstrap, sources, into, options)
    with running("rekey", once=once, every=every, master=master, conf=conf, as_json=json, work=work) as run:
        from skylog.spark.jobs.event_fields import EVENT_SCHEMA
        from skylog.spark.jobs.rekey import Rekey
        from skylog.spark.jobs.runner import plain_errors, run_queries
        from skylog.spark.jobs.schedule import ONCE
        from skylog.spark.jobs.target_topic import ensure_topic

        if ensure_topic(bootstrap, into, partitions):
            note(f"created topic '{into}'")
        job = Rekey(bootstrap, sources, into, key, state, schema or EVENT_SCHEMA, group, max_offsets, options)
        schedule = ONCE if run.schedule.has_rounds else run.schedule  # a round works through all that is there
        for _ in run.schedule.rounds(run.stop):
            with plain_errors("rekey"):
                query = job.start(run.spark, schedule)
            run_queries("rekey", [query], run.stop, run.report)
