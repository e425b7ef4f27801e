"""`skylog`: the commands, put together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from skylog import __version__
from skylog.cli import audit, console, demo, groups, log, pipelines, produce, replay, serve, tail, topics
from skylog.cli.output import fail
from skylog.errors import SkylogError

app = typer.Typer(
    name="skylog",
    help="A durable commit log that speaks the Apache Kafka protocol.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"skylog {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A durable commit log that speaks the Apache Kafka protocol."""


app.command("serve")(serve.serve)
app.command("console")(console.console)
app.add_typer(topics.app, name="topics")
app.command("produce")(produce.produce)
app.command("tail")(tail.tail)
app.command("replay")(replay.replay)
app.add_typer(groups.app, name="groups")
app.add_typer(audit.app, name="audit")
app.add_typer(log.app, name="log")
app.add_typer(pipelines.app, name="pipeline")
app.command("demo")(demo.demo)


def run() -> None:
    """The console script: a mistake of the user is one line on stderr, not a traceback."""
    try:
        app()
    except SkylogError as error:
        fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; that is not worth a word
        sys.exit(141)


if __name__ == "__main__":
    run()
