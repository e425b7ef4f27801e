"""`skylog pipeline run rekey`: copies a topic under another key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.pipelines.job_options import IntoPartitions, JobOptions, with_options
from skylog.cli.pipelines.running import Work, running
from skylog.terminal import note


@with_options
def rekey(
    sources: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics to read.", show_default=False)],
    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="EXPR",
            help="The new key: a Spark SQL expression over fields of the event, such as attributes.page, "
            "and of the record, such as record.partition.",
            show_default=False,
        ),
    ],
    into: Annotated[str, typer.Option("--into", metavar="TOPIC", help="The topic to write.", show_default=False)],
    partitions: IntoPartitions = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="DDL", help="The fields of the values.", show_default="those of skylog's events"
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Directory of the job's state.",
            show_default="skylog-state/rekey-TOPIC-to-TOPIC",
        ),
    ] = None,
    *,
    options: JobOptions,
) -> None:
    """Copy a topic under another key, with the same values, headers and timestamps, each record exactly once.

    [bold]skylog pipeline run rekey page_views --key attributes.page --into views_by_page --partitions 4[/]
    """
    if into in sources:
        raise typer.BadParameter("a topic cannot be rekeyed into itself", param_hint="--into")
    state = state or Path("skylog-state", f"rekey-{'-'.join(sources)}-to-{into}")
    cluster = options.cluster()
    work = Work(cluster, sources, into)
    with running("rekey", options, work) as run:
        from skylog.pipeline.event_parser import ENVELOPE
        from skylog.pipeline.job_definition import JobRun
        from skylog.pipeline.jobs.rekey import OPTIONS, rekey_job
        from skylog.pipeline.topic import Topic

        topic = Topic(into, partitions)
        if topic.ensure(cluster, sources[0]):
            note(f"created topic '{into}'")
        job = rekey_job(sources, topic, key, schema or ENVELOPE)
        group = options.group or "rekey"
        how = JobRun(run.schedule, run.stop, run.report, group, options.max_offsets, OPTIONS, state)
        job.run_with(run.spark, cluster, how)
