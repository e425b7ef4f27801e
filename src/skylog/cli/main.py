"""The `skylog` command: finds the subcommands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Final

import typer

from skylog import __version__
from skylog.errors import SkylogError

CONFIG_VARIABLE: Final = "SKYLOG_CONFIG"
COMMANDS: Final = {
    "serve": "skylog.cli.serve:serve",
    "console": "skylog.cli.console:console",
    "zookeeper": "skylog.cli.zookeeper:zookeeper",
    "cluster": "skylog.cli.cluster:app",
    "topics": "skylog.cli.topics:app",
    "produce": "skylog.cli.produce:produce",
    "tail": "skylog.cli.tail:tail",
    "replay": "skylog.cli.replay:replay",
    "groups": "skylog.cli.groups:app",
    "transactions": "skylog.cli.transactions:app",
    "users": "skylog.cli.users:app",
    "secure": "skylog.cli.secure:secure",
    "audit": "skylog.cli.audit:app",
    "log": "skylog.cli.log:app",
    "pipeline": "skylog.cli.pipelines:app",
    "search": "skylog.cli.search:search",
    "demo": "skylog.cli.demo:demo",
}
"""Where each command is: a function, or an app with subcommands. In the order of `skylog --help`."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skylog {__version__}")
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
    """A durable commit log that speaks the Apache Kafka protocol."""


def command_line(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the app with these commands. Others are not imported: a broker starts a tenth of a second earlier."""
    app = typer.Typer(
        name="skylog",
        help="A durable commit log that speaks the Apache Kafka protocol.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback()(main)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _apply_client_config(arguments: list[str]) -> None:
    """Take `--config FILE` out of the arguments, and let all clients of this process use the file.

    `--config KEY=VALUE` is a setting of a topic, and stays, also without its value: the command reports that. So does
    the `--config` of a broker.
    """
    if arguments[1:2] in (["serve"], ["console"]):
        return
    takes_settings = arguments[1:2] == ["topics"]
    for at in range(1, len(arguments) - 1):
        path = arguments[at + 1]
        if arguments[at] == "--config" and "=" not in path and not (takes_settings and not os.path.exists(path)):
            del arguments[at : at + 2]
            os.environ[CONFIG_VARIABLE] = path
            break
    path = os.environ.get(CONFIG_VARIABLE, "")
    if path and "SKYLOG_BOOTSTRAP" not in os.environ:
        from skylog.config import read_properties

        try:
            with open(path) as file:
                servers = read_properties(file.read()).get("bootstrap.servers")
        except OSError as error:
            from skylog.terminal import fail

            fail(f"cannot read --config {path}: {error.strerror}")
        if servers:
            os.environ["SKYLOG_BOOTSTRAP"] = servers


def run() -> None:
    """Run the console script. Prints a SkylogError as one line on stderr, without a traceback."""
    _apply_client_config(sys.argv)
    called = [name for name in sys.argv[1:2] if name in COMMANDS]
    try:
        command_line(called or COMMANDS)()
    except SkylogError as error:
        from skylog.terminal import fail

        fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has closed the pipe: exit silently
        sys.exit(141)


if __name__ == "__main__":
    run()
