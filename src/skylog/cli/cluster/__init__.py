"""`skylog cluster`: the group of its commands, one module each. Register a further one below."""

from __future__ import annotations

import typer

from skylog.cli.cluster.describe import describe
from skylog.cli.cluster.drain import drain
from skylog.cli.cluster.elect import elect
from skylog.cli.cluster.reassign import reassign
from skylog.cli.cluster.registry import registry
from skylog.cli.cluster.up import up

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Run a cluster on this machine; describe and administer any cluster.

    [bold]skylog cluster up --brokers 3[/]

    [bold]skylog cluster describe[/]
    """,
)
app.command("up")(up)
app.command("describe")(describe)
app.command("elect")(elect)
app.command("reassign")(reassign)
app.command("drain")(drain)
app.command("registry")(registry)
