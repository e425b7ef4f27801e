"""`skylog console`: runs the web console."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.log_format import LOG_FORMAT_VARIABLE, LogFormat, start_logging
from skylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parse_pairs, read_settings
from skylog.console.settings import (
    CLUSTER_NAME,
    DEFAULT_PORT,
    PASSWORD_VARIABLE,
    TOKEN_VARIABLE,
    USER_VARIABLE,
    Settings,
)
from skylog.registry.settings import PASSWORD_VARIABLE as REGISTRY_PASSWORD_VARIABLE
from skylog.registry.settings import TOKEN_VARIABLE as REGISTRY_TOKEN_VARIABLE
from skylog.registry.settings import URL_VARIABLE
from skylog.registry.settings import USER_VARIABLE as REGISTRY_USER_VARIABLE
from skylog.search_index import INDEX_VARIABLE
from skylog.terminal import stderr
from skylog.web.access import ASKS_NOBODY
from skylog.web.listening import listen, url_of


def parse_clusters(texts: list[str]) -> dict[str, str]:
    """Parse the texts `NAME=HOST:PORT` of further clusters."""
    pairs = parse_pairs(texts, "--cluster")
    for name, address in pairs:
        if not CLUSTER_NAME.fullmatch(name) or not address:
            raise typer.BadParameter(f"expected NAME=HOST:PORT, got '{name}={address}'", param_hint="--cluster")
    if len(dict(pairs)) < len(pairs):
        raise typer.BadParameter("two clusters have the same name", param_hint="--cluster")
    return dict(pairs)


def console(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; other than loopback only with credentials.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = DEFAULT_PORT,
    clusters: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster", metavar="NAME=HOST:PORT", help="A further cluster, with the same settings; can be repeated."
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Reject all changes.")] = False,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar=TOKEN_VARIABLE,
            help="Access token; set it in the environment to hide it from other users.",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", envvar=USER_VARIABLE, help="User name for the login.")] = None,
    password: Annotated[
        str | None, typer.Option("--password", envvar=PASSWORD_VARIABLE, help="Password for the login.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help="A librdkafka setting for the connection, such as security.protocol=SASL_SSL; can be repeated.",
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config", help="A properties file with Kafka's names, as for other commands; --option takes precedence."
        ),
    ] = None,
    search_index: Annotated[
        Path | None,
        typer.Option(
            "--search-index", metavar="PATH", envvar=INDEX_VARIABLE, help="The index of the job search, for /search."
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", metavar="URL", envvar=URL_VARIABLE, help="The schema registry, for /schemas and messages."
        ),
    ] = None,
    registry_token: Annotated[
        str | None,
        typer.Option("--registry-token", envvar=REGISTRY_TOKEN_VARIABLE, help="Access token of the registry."),
    ] = None,
    registry_user: Annotated[
        str | None,
        typer.Option("--registry-user", envvar=REGISTRY_USER_VARIABLE, help="User name for the registry."),
    ] = None,
    registry_password: Annotated[
        str | None,
        typer.Option("--registry-password", envvar=REGISTRY_PASSWORD_VARIABLE, help="Password for the registry."),
    ] = None,
    registry_inherits_login: Annotated[
        bool,
        typer.Option("--registry-inherits-login", help="Log in to the registry with the login of the cluster."),
    ] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", help="Log level on stderr: debug, info, warning or error.")
    ] = "warning",
    log_format: Annotated[
        LogFormat,
        typer.Option("--log-format", envvar=LOG_FORMAT_VARIABLE, help="Log as text, or as one JSON object per line."),
    ] = LogFormat.TEXT,
    listen_fd: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
    broker_fd: Annotated[int | None, typer.Option("--broker-fd", hidden=True)] = None,
) -> None:
    """Show a cluster in the browser: topics, messages, groups, the audit and the pipelines.

    Works with any cluster that speaks the Kafka protocol. [bold]skylog serve[/] starts a console by default. If the
    cluster asks for a user and a password, so does the console, unless you set other credentials.

    [bold]skylog console --bootstrap kafka-1:9092,kafka-2:9092 --read-only[/]
    """
    import asyncio

    chosen = read_settings(config_file, options or [], "--option")
    servers = chosen.pop("bootstrap.servers", None)
    if servers and bootstrap == DEFAULT_BOOTSTRAP:
        bootstrap = servers
    from skylog.client import Connection

    connection = Connection(bootstrap, chosen)
    inherited = connection.login() if registry_inherits_login and not (registry_token or registry_user) else None
    if inherited is not None:
        registry_user, registry_password = inherited
    others = parse_clusters(clusters or [])
    settings = Settings(
        bootstrap,
        host,
        port,
        read_only,
        token,
        user,
        password,
        chosen,
        clusters=others,
        search_index=search_index,
        registry=registry,
        registry_token=registry_token,
        registry_user=registry_user,
        registry_password=registry_password,
        asks_users=not (token or user) and connection.login() is not None,
    )
    settings.check()
    start_logging(log_level, log_format)
    from skylog.console.cluster.parent_broker import ParentBroker
    from skylog.console.server.serving import serve

    connection.admin_client()  # report settings that librdkafka rejects now, not on a page
    if listen_fd is not None:
        listener = socket.socket(fileno=listen_fd)
    else:
        listener = listen(host, port)
        stderr.print(f"console at {url_of(listener)} of the cluster at {bootstrap}", markup=False)
        if settings.asks_users:
            stderr.print(f"log in as {connection.user}, or as a user who may alter the cluster", markup=False)
        elif not settings.requires_credentials and not connection.is_plaintext:
            stderr.print(ASKS_NOBODY.format("console"), markup=False)
    asyncio.run(serve(settings, listener, None if broker_fd is None else ParentBroker(broker_fd)))
