"""`skylog pipeline run MODULE:NAME`: runs a job of your own."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from skylog.cli.pipelines.job_options import StreamOptions, with_options
from skylog.cli.pipelines.job_path import load_job
from skylog.cli.pipelines.running import run_job

COMMAND = "job"


class JobGroup(TyperGroup):
    """Takes the path of a job, `MODULE:NAME`, in the place of a command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and ":" in args[0]:
            return args[0], self.get_command(ctx, COMMAND), args
        return super().resolve_command(ctx, args)


@with_options
def own_job(
    path: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="The job, such as shop.jobs:spam.", show_default=False)
    ],
    *,
    options: StreamOptions,
) -> None:
    """Run a job of your own: a function with the decorator `skylog.pipeline.job`, in a module of this directory.

    [bold]skylog pipeline run job shop.jobs:spam --once[/]

    [bold]skylog pipeline run shop.jobs:spam --once[/] does the same.
    """
    cluster = options.cluster()
    from skylog.spark.session import start_session

    job = load_job(path, lambda: start_session(f"skylog-{path}", options.master, options.spark_settings))
    run_job(job, cluster, options)
