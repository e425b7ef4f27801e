"""`skylog registry`: runs a schema registry."""

from __future__ import annotations

import socket
import sys
from typing import Annotated

import typer

from skylog.cli.log_format import LOG_FORMAT_VARIABLE, LogFormat, start_logging
from skylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from skylog.registry.settings import (
    DEFAULT_PORT,
    DEFAULT_TOPIC,
    PASSWORD_VARIABLE,
    TOKEN_VARIABLE,
    USER_VARIABLE,
    RegistrySettings,
)
from skylog.terminal import note
from skylog.web.access import ASKS_NOBODY
from skylog.web.listening import listen, url_of


def registry(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; other than loopback only with credentials.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = DEFAULT_PORT,
    topic: Annotated[
        str, typer.Option("--topic", help="The topic that holds the schemas; created if it does not exist.")
    ] = DEFAULT_TOPIC,
    advertised_url: Annotated[
        str | None,
        typer.Option(
            "--advertised-url",
            metavar="URL",
            help="Where other registries of the cluster reach this one; by default its address.",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Reject all changes by clients of this one.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar=TOKEN_VARIABLE,
            help="Access token; set it in the environment to hide it from other users.",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", envvar=USER_VARIABLE, help="User name of clients.")] = None,
    password: Annotated[
        str | None, typer.Option("--password", envvar=PASSWORD_VARIABLE, help="Password of clients.")
    ] = None,
    log_level: Annotated[
        str, typer.Option("--log-level", help="Log level on stderr: debug, info, warning or error.")
    ] = "warning",
    log_format: Annotated[
        LogFormat,
        typer.Option("--log-format", envvar=LOG_FORMAT_VARIABLE, help="Log as text, or as one JSON object per line."),
    ] = LogFormat.TEXT,
    listen_fd: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
    parent_fd: Annotated[int | None, typer.Option("--parent-fd", hidden=True)] = None,
) -> None:
    """Run a schema registry with the REST API of Confluent's, over the topic [bold]_schemas[/].

    Prints the line [bold]registry at URL[/] when clients can connect. Several registries of one cluster elect one that
    writes; the others forward changes to it. If the cluster asks for a user and a password, so does the registry,
    unless you set other credentials.

    [bold]skylog registry --bootstrap kafka-1:9092 --port 8081[/]
    """
    import asyncio

    from skylog.client import Connection

    connection = Connection(bootstrap)
    own_user = connection.user
    asks_users = not (token or user) and own_user is not None
    settings = RegistrySettings(
        bootstrap, host, port, read_only, token, user, password, topic, advertised_url, asks_users=asks_users
    )
    settings.check()
    start_logging(log_level, log_format)
    listener = listen(host, port, server="registry") if listen_fd is None else socket.socket(fileno=listen_fd)

    def announce() -> None:
        if listen_fd is not None:
            return  # the broker has printed it
        sys.stdout.write(f"registry at {url_of(listener)}\n")
        sys.stdout.flush()
        if asks_users:
            note(f"log in as {own_user}, or as a user who may read, or write, the topic {topic}")
        elif not settings.requires_credentials and not connection.is_plaintext:
            note(ASKS_NOBODY.format("registry"))

    from skylog.registry.serving import serve

    asyncio.run(serve(settings, listener, announce, parent_fd))
