"""`skylog console`: a cluster in the browser."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.log_format import LOG_FORMAT_VARIABLE, LogFormat, start_logging
from skylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, read_settings
from skylog.cli.output import stderr
from skylog.console.listening import listen, url_of
from skylog.console.settings import DEFAULT_PORT, PASSWORD_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE, Settings


def console(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; beyond this machine only with credentials.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = DEFAULT_PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Look, but change nothing.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar=TOKEN_VARIABLE,
            help="What visitors must show; better in the environment, where other users don't see it.",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", envvar=USER_VARIABLE, help="A user who may log in.")] = None,
    password: Annotated[
        str | None, typer.Option("--password", envvar=PASSWORD_VARIABLE, help="The password of that user.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help="How to reach the cluster, as librdkafka has it: security.protocol=SASL_SSL, sasl.mechanism=PLAIN; "
            "may be given many times.",
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", help="A file with such lines, the place for secrets; --option goes before it."),
    ] = None,
    log_level: Annotated[
        str, typer.Option("--log-level", help="What to log on stderr: debug, info, warning or error.")
    ] = "warning",
    log_format: Annotated[
        LogFormat,
        typer.Option("--log-format", envvar=LOG_FORMAT_VARIABLE, help="Text, or one JSON object per line."),
    ] = LogFormat.TEXT,
    listen_fd: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
    broker_fd: Annotated[int | None, typer.Option("--broker-fd", hidden=True)] = None,
) -> None:
    """Show a cluster in the browser: topics, messages, groups, the audit, the pipelines.

    Works with every cluster that speaks Kafka's protocol. [bold]skylog serve[/] has a console of its own.

    [bold]skylog console --bootstrap kafka-1:9092,kafka-2:9092 --read-only[/]
    """
    import asyncio

    chosen = read_settings(config_file, options or [], "--option")
    settings = Settings(bootstrap, host, port, read_only, token, user, password, chosen)
    settings.check()
    start_logging(log_level, log_format)
    from skylog.client import Connection
    from skylog.console.broker_beside import BrokerBeside
    from skylog.console.serving import serve

    Connection(bootstrap, settings.options).admin_client()  # what librdkafka refuses is told now, not on a page
    if listen_fd is not None:
        listener = socket.socket(fileno=listen_fd)
    else:
        listener = listen(host, port)
        stderr.print(f"console at {url_of(listener)} of the cluster at {bootstrap}", markup=False)
    asyncio.run(serve(settings, listener, None if broker_fd is None else BrokerBeside(broker_fd)))
