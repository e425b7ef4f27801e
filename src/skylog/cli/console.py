"""`skylog console`: a cluster in the browser."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from typing import Annotated

import typer

from skylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from skylog.cli.output import stderr


def console(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; beyond this machine only with credentials.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8080,
    read_only: Annotated[bool, typer.Option("--read-only", help="Look, but change nothing.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="SKYLOG_CONSOLE_TOKEN",
            show_envvar=True,
            help="What visitors must show; better in the environment, where other users don't see it.",
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", envvar="SKYLOG_CONSOLE_USER", help="A user who may log in.")
    ] = None,
    password: Annotated[
        str | None, typer.Option("--password", envvar="SKYLOG_CONSOLE_PASSWORD", help="The password of that user.")
    ] = None,
    listen_fd: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
    broker_fd: Annotated[int | None, typer.Option("--broker-fd", hidden=True)] = None,
) -> None:
    """Show a cluster in the browser: topics, messages, groups, the audit, the pipelines.

    Works with every cluster that speaks Kafka's protocol. [bold]skylog serve[/] has a console of its own.

    [bold]skylog console --bootstrap kafka-1:9092,kafka-2:9092 --read-only[/]
    """
    from skylog.console.serving import listen, serve
    from skylog.console.settings import Settings

    settings = Settings(bootstrap, host, port, read_only, token, user, password)
    settings.check()
    logging.basicConfig(
        level=logging.INFO if broker_fd is None else logging.WARNING,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    listener = listen(host, port) if listen_fd is None else socket.socket(fileno=listen_fd)
    if listen_fd is None:
        address, bound = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        stderr.print(f"console at [bold cyan]http://{shown}:{bound}[/] for the cluster at {bootstrap}")
    asyncio.run(serve(settings, listener))
