"""`skylog pipeline table`: the history and the upkeep of Delta tables. Needs no Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skylog.cli.options import AsJson, parse_duration_ms
from skylog.cli.pipelines.running import checked_table
from skylog.cli.requirements import check_requirements
from skylog.printable import iso_time
from skylog.terminal import note, print_json, write

if TYPE_CHECKING:
    from skylog.pipeline.table import Table

app = typer.Typer(
    help="""Show and maintain Delta tables.

    [bold]skylog pipeline table history warehouse/page_views[/]
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Path = Annotated[
    str,
    typer.Argument(metavar="PATH", help="A directory or s3://bucket/path.", callback=checked_table, show_default=False),
]


@app.command("history")
def history(
    path: Path,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of versions.")] = 20,
    json: AsJson = False,
) -> None:
    """Show the versions of a table, newest first, with the offsets of the topics that they cover.

    [bold]skylog pipeline table history warehouse/page_views[/]
    """
    from skylog.spark.reading.positions import offsets_json

    rows = [
        {
            "version": each.version,
            "time": iso_time(each.time_ms),
            "operation": each.operation,
            "offsets": None if each.offsets is None else offsets_json(each.offsets),
        }
        for each in _table(path).history(limit)
    ]
    if json:
        print_json(rows)
        return
    for row in rows:
        write(f"{row['version']:>6}  {row['time']}  {row['operation']}  {row['offsets'] or ''}\n".rstrip() + "\n")


@app.command("optimize")
def optimize(path: Path) -> None:
    """Merge small files. Rows do not change, and readers and jobs continue.

    [bold]skylog pipeline table optimize warehouse/page_views[/]
    """
    figures = _table(path).optimize()
    note(f"{path}: replaced {figures['numFilesRemoved']:,} files with {figures['numFilesAdded']:,}")


@app.command("vacuum")
def vacuum(
    path: Path,
    keep: Annotated[
        str, typer.Option("--keep", metavar="TIME", help="Keep the files of the versions of this time.")
    ] = "7d",
) -> None:
    """Delete files that only older versions have, and files that failed jobs have left.

    [bold]skylog pipeline table vacuum warehouse/page_views --keep 30d[/]
    """
    keep_ms = parse_duration_ms(keep, "--keep")
    found = _table(path)
    from skylog.pipeline.table import LEAST_KEPT_MS

    if keep_ms < LEAST_KEPT_MS:
        raise typer.BadParameter("keep at least 1h: jobs write files before they commit them", param_hint="--keep")
    deleted = found.vacuum(keep_ms=keep_ms)
    note(f"{path}: deleted {len(deleted):,} files")


def _table(path: str) -> Table:
    check_requirements(needs_java=False)
    from skylog.pipeline.table import Table

    return Table(path)
