"""`skylog pipeline run land`: topics into a warehouse of Parquet tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_duration_ms, parse_pairs
from skylog.cli.pipelines.running import Every, Master, Once, SourceOptions, SparkConf, Work, checked_directory, running

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


def land(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics to land.", show_default=False)],
    warehouse: Annotated[
        Path,
        typer.Option(
            "--warehouse",
            metavar="DIR",
            help="Where the tables are, a directory for each topic.",
            callback=checked_directory,
        ),
    ] = Path("warehouse"),
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="DDL", help="The events' fields.", show_default="those of skylog's events"),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(
            "--event-time",
            metavar="FIELD",
            help="The field that says when it happened: a TIMESTAMP, DOUBLE (seconds), BIGINT (ms) or STRING (ISO).",
            show_default="the record's time",
        ),
    ] = None,
    file_size: Annotated[str, typer.Option("--file-size", metavar="SIZE", help="Of a file, about.")] = "128MiB",
    merge: Annotated[bool, typer.Option("--merge/--no-merge", help="Put small files together.")] = True,
    merge_after: Annotated[
        str, typer.Option("--merge-after", metavar="TIME", help="Once an hour has had no new file for so long.")
    ] = "10m",
    keep_replaced: Annotated[
        str,
        typer.Option(
            "--keep-replaced", metavar="TIME", help="How long merged files stay for readers that have a snapshot."
        ),
    ] = "1h",
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Tell the audit what has landed, see skylog audit.")
    ] = True,
    group: Annotated[str, typer.Option("--group", help="The consumer group that shows the progress.")] = "land",
    max_offsets: Annotated[int, typer.Option("--max-offsets", min=1, help="In one batch, at most.")] = 2_000_000,
    option: SourceOptions = None,
    once: Once = False,
    every: Every = None,
    master: Master = "local[*]",
    conf: SparkConf = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Put the events of topics into Parquet tables by date and hour, each record once, whatever dies on the way.

    A topic's table goes on where it ends. What does not parse is in the table TOPIC__unparsed.

    [bold]skylog pipeline run land page_views --warehouse warehouse --every 5m[/]
    """
    file_size_bytes = _parse_size(file_size)
    after_ms, grace_ms = (
        parse_duration_ms(merge_after, "--merge-after"),
        parse_duration_ms(keep_replaced, "--keep-replaced"),
    )
    options = dict(parse_pairs(option, "--option"))
    work = Work(bootstrap, topics, warehouse.absolute(), options)
    with running("land", once=once, every=every, master=master, conf=conf, as_json=json, work=work) as run:
        from skylog.spark.jobs.land import ENVELOPE, LandSettings, MergeSettings
        from skylog.spark.jobs.land import land as run_land

        settings = LandSettings(
            warehouse,
            schema=schema or ENVELOPE,
            event_time=event_time,
            file_size_bytes=file_size_bytes,
            merge=MergeSettings(after_ms, grace_ms) if merge else None,
            is_audited=audit,
        )
        run_land(
            run.spark,
            bootstrap,
            topics,
            settings,
            schedule=run.schedule,
            stop=run.stop,
            report=run.report,
            group=group,
            max_offsets=max_offsets,
            options=options,
        )


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise typer.BadParameter(f"'{text}' is no size: give such as 64MiB or 1GiB", param_hint="--file-size")
    return int(match[1]) * _UNITS_BYTES[match[2] or "B"]
