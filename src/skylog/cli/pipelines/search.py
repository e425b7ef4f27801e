"""`skylog pipeline run search`: keeps a full-text index in step with a topic of documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from skylog.cli.pipelines.job_options import JobOptions, SourceTopics, with_options
from skylog.cli.pipelines.running import run_job
from skylog.search_index import DEFAULT_INDEX, INDEX_VARIABLE

_BATCH: Final = 10_000  # the documents of a batch are in the driver's memory


@with_options
def search(
    topics: SourceTopics,
    index: Annotated[
        Path, typer.Option("--index", metavar="PATH", envvar=INDEX_VARIABLE, help="The index: a SQLite file.")
    ] = DEFAULT_INDEX,
    schema: Annotated[
        str, typer.Option("--schema", metavar="DDL", help="The fields of the values.")
    ] = "title STRING, text STRING",
    id_: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="EXPR",
            help="The document's id: a Spark SQL expression over the fields and the record. By default the record's "
            "key: as text, or in hexadecimal digits if it is not text.",
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", metavar="EXPR", help="The title.")] = "title",
    text: Annotated[str, typer.Option("--text", metavar="EXPR", help="The text.")] = "text",
    deleted: Annotated[
        str,
        typer.Option("--deleted", metavar="EXPR", help="Whether a record deletes the document; no value always does."),
    ] = "false",
    where: Annotated[
        str, typer.Option("--where", metavar="EXPR", help="Which records are documents; others are ignored.")
    ] = "true",
    *,
    options: JobOptions,
) -> None:
    """Keep a full-text index in step with a topic of documents, deletes included, even after crashes.

    The key of a record is the document's id, and the value is the document as JSON. A record without a value deletes
    it. A batch has 10,000 offsets unless --max-offsets is set.

    [bold]skylog pipeline run search pages --index search.db[/]

    [bold]skylog search comet harbour[/] queries the index, as does the console.
    """
    cluster = options.cluster()
    from skylog.pipeline.jobs.search import DocumentFields, SearchIndex, search_job

    fields = DocumentFields(schema, title=title, text=text, deleted=deleted, where=where)
    if id_ is not None:
        fields = replace(fields, id=id_)
    job = search_job(topics, SearchIndex(index), fields)
    run_job(job, cluster, replace(options, max_offsets=options.max_offsets or _BATCH))
