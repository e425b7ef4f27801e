"""`skylog pipeline run rekey`: copies a topic under another key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.pipelines.job_options import IntoPartitions, StreamOptions, with_options
from skylog.cli.pipelines.running import run_job


@dataclass(frozen=True, kw_only=True)
class RekeyOptions(StreamOptions):
    """Each pair of topics has its own state."""

    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Directory of the job's state.",
            show_default="skylog-state/rekey-TOPIC-to-TOPIC",
        ),
    ] = None


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
    *,
    options: RekeyOptions,
) -> None:
    """Copy a topic under another key, with the same values, headers and timestamps, each record exactly once.

    [bold]skylog pipeline run rekey page_views --key attributes.page --into views_by_page --partitions 4[/]
    """
    if into in sources:
        raise typer.BadParameter("a topic cannot be rekeyed into itself", param_hint="--into")
    cluster = options.cluster()
    from skylog.pipeline import Topic
    from skylog.pipeline.event_parser import ENVELOPE
    from skylog.pipeline.jobs.rekey import rekey_job

    job = rekey_job(sources, Topic(into, partitions), key, schema or ENVELOPE)
    state = options.state or Path("skylog-state", f"rekey-{'-'.join(sources)}-to-{into}")
    run_job(job, cluster, replace(options, state=state))
