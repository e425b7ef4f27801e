"""The options that job commands share, as one parameter of the command.

@with_options
def rekey(topic: …, *, options: JobOptions) -> None:
    run_job(rekey_job([topic], …), options.cluster(), options)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_duration_ms, parse_pairs
from skylog.cli.requirements import check_requirements

if TYPE_CHECKING:
    from skylog.pipeline.cluster import Cluster

SourceTopics = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics of events.", show_default=False)]
IntoPartitions = Annotated[
    int | None,
    typer.Option(
        "--partitions", min=1, help="Number of partitions if the topic is created.", show_default="as the first source"
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Process everything available, and exit.")]
Every = Annotated[
    str | None,
    typer.Option("--every", metavar="TIME", help="Run at intervals, such as 30s or 1h.", show_default="continuously"),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="An option of the data source, such as failOnDataLoss=false; can be repeated.",
    ),
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="The Spark master; local[*] is this machine.")]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; can be repeated."),
]
Group = Annotated[
    str | None,
    typer.Option("--group", help="Consumer group whose commits show the progress.", show_default="the name of the job"),
]
MaxOffsets = Annotated[
    int | None,
    typer.Option("--max-offsets", min=1, help="Maximum number of offsets per batch.", show_default="all"),
]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="Directory of a stream's state.", show_default="skylog-state/NAME"),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """When a job runs, on which Spark, and with which cluster."""

    once: Once = False
    every: Every = None
    option: SourceOptions = None
    master: Master = "local[*]"
    conf: SparkConf = None
    json: AsJson = False
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP

    def cluster(self) -> Cluster:
        """Return the cluster, with the options of `--option`: those of the data source, and how to connect."""
        options = dict(parse_pairs(self.option, "--option"))
        check_requirements(needs_java=False)
        from skylog.pipeline.cluster import Cluster

        return Cluster(self.bootstrap, options)

    @property
    def every_s(self) -> float | None:
        """The interval for `Schedule`: None is once, 0 is continuously."""
        if self.once and self.every is not None:
            raise typer.BadParameter("--once and --every exclude each other", param_hint="--once")
        return None if self.once else (parse_duration_ms(self.every, "--every") / 1000 if self.every else 0.0)

    @property
    def spark_settings(self) -> dict[str, str]:
        return dict(parse_pairs(self.conf, "--conf"))


@dataclass(frozen=True, kw_only=True)
class JobOptions(RunOptions):
    """The options of jobs that read topics in batches."""

    group: Group = None
    max_offsets: MaxOffsets = None


@dataclass(frozen=True, kw_only=True)
class StreamOptions(JobOptions):
    """The options of jobs that may keep state."""

    state: State = None


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `options` of a command with an option for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    kind = hints["options"]
    kinds = get_type_hints(kind, include_extras=True)
    own = [
        each.replace(annotation=hints[each.name])
        for each in inspect.signature(command).parameters.values()
        if each.name != "options"
    ]
    common = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=kinds[each.name])
        for each in fields(kind)
    ]

    def run(**values: Any) -> None:
        given = {each.name: values.pop(each.name) for each in common}
        command(**values, options=kind(**given))

    found: Any = functools.update_wrapper(run, command)
    found.__signature__ = inspect.Signature([*own, *common])
    found.__annotations__ = {each.name: each.annotation for each in (*own, *common)}
    return run
