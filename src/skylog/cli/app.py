"""The commands as one typer app, with the options of `skylog` itself."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated

import typer

from skylog import __version__
from skylog.cli.client_config import CONFIG_VARIABLE


def _show_version(wanted: bool) -> None:
    if wanted:
        from skylog.broker.producer_runs import compiled

        typer.echo(f"skylog {__version__} ({'with its compiled kernel' if compiled is not None else 'pure Python'})")
        raise typer.Exit


def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            envvar=CONFIG_VARIABLE,
            help="A properties file on how to reach the cluster, with Kafka's names; also after a command.",
        ),
    ] = None,
) -> None:
    """A durable commit log that speaks the Apache Kafka protocol.

    [bold]skylog serve --data-dir data[/] runs a broker until Ctrl-C. In another terminal:

    [bold]echo hello | skylog produce greetings[/]

    [bold]skylog tail greetings[/]
    """


def build_app(commands: Mapping[str, str]) -> typer.Typer:
    """Return the app with these commands: by name, where each is. A command is a function, or an app."""
    app = typer.Typer(
        name="skylog",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback()(main)
    for name, place in commands.items():
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app
