"""`skylog capture`: the changes of a database's tables as topics."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from skylog.cli.confirmation import confirm
from skylog.cli.log_format import start_logging
from skylog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Configs, Yes, parse_pairs
from skylog.cli.stop_signals import stopped_by_signals
from skylog.errors import ConfigError
from skylog.registry.settings import URL_VARIABLE
from skylog.terminal import note, write

if TYPE_CHECKING:
    from skylog.capture.capture import CaptureStatus

_RUN: Final = "run"


class _RunByDefault(TyperGroup):
    """Runs `run` if the first argument is no command: `skylog capture postgresql://…`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_command = bool(args) and (args[0] in self.commands or args[0] in ("--help", "-h"))
        return super().parse_args(ctx, args if is_command or not args else [_RUN, *args])


app = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Capture the changes of PostgreSQL's tables as topics.

    [bold]skylog capture postgresql://localhost/shop --tables public.users,public.orders --prefix shop[/]
    """,
)

Url = Annotated[
    str, typer.Argument(metavar="URL", help="The database: postgresql://user@host/name.", show_default=False)
]
Prefix = Annotated[
    str,
    typer.Option("--prefix", help="Names the capture, its slot and publication, and begins its topics' names."),
]


@app.command(_RUN)
def run(
    url: Url,
    tables: Annotated[
        str, typer.Option("--tables", metavar="NAMES", help="Tables as SCHEMA.TABLE, by comma.", show_default=False)
    ],
    prefix: Prefix,
    envelope: Annotated[
        str, typer.Option("--envelope", metavar="debezium|plain", help="Values: Debezium's envelope, or plain rows.")
    ] = "debezium",
    value_format: Annotated[
        str, typer.Option("--format", metavar="json|avro", help="Keys and values: JSON, or Avro with --registry.")
    ] = "json",
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="URL",
            help=f"The schema registry, for --format avro; several by comma. Default: {URL_VARIABLE}.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Partitions of topics that do not exist yet.")
    ] = 1,
    configs: Configs = None,
    chunk_rows: Annotated[
        int, typer.Option("--chunk-rows", min=1, help="Rows of the first snapshot that are read at a time.")
    ] = 10_000,
    once: Annotated[bool, typer.Option("--once", help="Exit when everything that is there now is captured.")] = False,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", metavar="PORT", help="Serve metrics to Prometheus on this port.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Capture tables: first all rows that they have, and from now on every change, exactly once.

    The topics are PREFIX.SCHEMA.TABLE, with the primary key as the key.

    [bold]skylog capture postgresql://localhost/shop --tables public.users,public.orders --prefix shop[/]
    """
    _check_installed()
    from skylog.capture.capture import CaptureSettings, EnvelopeName, FormatName
    from skylog.capture.service import run_capture

    names = list(dict.fromkeys(name.strip() for name in tables.split(",") if name.strip()))
    if not names or any(name.count(".") != 1 for name in names):
        raise typer.BadParameter(f"expected names such as public.users, got '{tables}'", param_hint="--tables")
    if envelope not in list(EnvelopeName):
        raise typer.BadParameter(f"expected debezium or plain, got '{envelope}'", param_hint="--envelope")
    if value_format not in list(FormatName):
        raise typer.BadParameter(f"expected json or avro, got '{value_format}'", param_hint="--format")
    if registry is None and value_format == FormatName.AVRO:
        registry = os.environ.get(URL_VARIABLE)
    if (registry is None) is (value_format == FormatName.AVRO):
        raise typer.BadParameter("--format avro and --registry URL belong together", param_hint="--registry")
    start_logging(log_level)
    settings = CaptureSettings(
        url,
        names,
        prefix,
        bootstrap,
        EnvelopeName(envelope),
        partitions,
        dict(parse_pairs(configs, "--config")),
        chunk_rows,
        format=FormatName(value_format),
        registry=registry,
    )
    shown = [_Shown(as_json).show]
    if metrics_port is not None:
        from skylog.capture.metrics import CaptureMetrics

        shown.append(CaptureMetrics(prefix, metrics_port).show)

    def report(status: CaptureStatus) -> None:
        for show in shown:
            show(status)

    stop = Event()
    with stopped_by_signals(stop.set):
        run_capture(settings, stop, report, once=once)


@app.command("drop")
def drop(url: Url, prefix: Prefix, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Drop the slot and the publication of a capture, and its position. Its topics stay.

    [bold]skylog capture drop postgresql://localhost/shop --prefix shop --yes[/]
    """
    _check_installed()
    from skylog.capture.drop import drop_capture

    if not yes:
        confirm(
            f"Drop the capture {prefix}? If it is started again, it reads its tables anew.",
            "a capture that is dropped reads its tables anew",
        )
    dropped = drop_capture(url, prefix, bootstrap)
    note(f"dropped {', '.join(dropped)}" if dropped else f"there is nothing of a capture {prefix}")


class _Shown:
    """Prints the status of a capture: in JSON each time, for people when it has changed."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._last: CaptureStatus | None = None

    def show(self, status: CaptureStatus) -> None:
        if self._as_json:
            write(json.dumps(status._asdict()) + "\n")
            sys.stdout.flush()  # the reader of a pipe gets each line immediately
        elif (
            self._last is None
            or status.rows != self._last.rows
            or status.is_snapshot_done != self._last.is_snapshot_done
        ):
            state = "" if status.is_snapshot_done else ", snapshot is being read"
            note(f"captured {status.rows:,} rows, behind by {status.lag_s:.1f} s, {status.lag_bytes:,} bytes{state}")
        self._last = status


def _check_installed() -> None:
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigError("a capture requires psycopg: pip install 'skylog[postgres]'")
    logging.getLogger("psycopg").setLevel(logging.WARNING)
