"""`skylog pipeline run land`: writes topics to a warehouse of Delta tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from skylog.cli.options import parse_duration_ms
from skylog.cli.pipelines.job_options import JobOptions, with_options
from skylog.cli.pipelines.running import checked_table, run_job

_SIZE: Final = re.compile(r"(\d+)\s*(KiB|MiB|GiB|kB|MB|GB|B)?")
_UNITS_BYTES: Final = {
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}


@dataclass(frozen=True, kw_only=True)
class LandOptions(JobOptions):
    """Batches have a limit, because an increment is one commit."""

    max_offsets: Annotated[
        int | None, typer.Option("--max-offsets", min=1, help="Maximum number of offsets per batch.")
    ] = 2_000_000


@with_options
def land(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC…]", help="Topics to land.", show_default=False)
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="REGEX",
            help="Land all topics whose whole name matches, such as those of all sites; looked up at the start.",
            show_default=False,
        ),
    ] = None,
    warehouse: Annotated[
        str,
        typer.Option(
            "--warehouse",
            metavar="PATH",
            help="Where the tables are, one per topic: a directory, or s3://bucket/path.",
            callback=checked_table,
        ),
    ] = "warehouse",
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="DDL", help="The fields of the events.", show_default="those of skylog's events"
        ),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(
            "--event-time",
            metavar="FIELD",
            help="The field with the event time: TIMESTAMP, DOUBLE (seconds), BIGINT (ms) or STRING (ISO).",
            show_default="the record's timestamp",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="URL",
            help="Values are Avro, with schemas of this registry, whose fields are the columns.",
            show_default=False,
        ),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            "--subject",
            metavar="NAMES",
            help="The subjects of the registry, separated by commas; NAME* is all that begin with NAME.",
            show_default="TOPIC-value",
        ),
    ] = None,
    file_size: Annotated[
        str, typer.Option("--file-size", metavar="SIZE", help="Approximate size of a file.")
    ] = "128MiB",
    merge: Annotated[bool, typer.Option("--merge/--no-merge", help="Merge small files, delete replaced ones.")] = True,
    merge_after: Annotated[
        str,
        typer.Option(
            "--merge-after", metavar="TIME", help="Merge the files of an hour after this time without a new file."
        ),
    ] = "10m",
    keep: Annotated[
        str,
        typer.Option("--keep", metavar="TIME", help="How long replaced files are kept, for readers of older versions."),
    ] = "7d",
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Report the landed messages to the audit, see skylog audit.")
    ] = True,
    *,
    options: LandOptions,
) -> None:
    """Write the events of topics to Delta tables by date and hour, each record exactly once, even after crashes.

    A topic's table continues where it ended. Records that cannot be parsed go to the table TOPIC__unparsed.

    [bold]skylog pipeline run land page_views --warehouse warehouse --every 5m[/]

    [bold]skylog pipeline run land --pattern '.*\\.page_views'[/]
    """
    if not topics and pattern is None:
        raise typer.BadParameter("give topics, or --pattern REGEX", param_hint="TOPIC")
    file_size_bytes = _parse_size(file_size)
    after_ms, keep_ms = parse_duration_ms(merge_after, "--merge-after"), parse_duration_ms(keep, "--keep")
    cluster = options.cluster()
    from skylog.pipeline.jobs.land import ENVELOPE, Land, LandSettings, UpkeepSettings, matching_topics

    settings = LandSettings(
        warehouse,
        schema=schema or ENVELOPE,
        event_time=event_time,
        file_size_bytes=file_size_bytes,
        upkeep=UpkeepSettings(after_ms, keep_ms) if merge else None,
        is_audited=audit,
        registry=registry,
        subject=subject,
    )
    names = dict.fromkeys([*(topics or []), *(matching_topics(cluster, pattern) if pattern is not None else [])])
    run_job(Land(list(names), settings), cluster, options)


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise typer.BadParameter(f"'{text}' is not a size: use a form such as 64MiB or 1GiB", param_hint="--file-size")
    return int(match[1]) * _UNITS_BYTES[match[2] or "B"]
