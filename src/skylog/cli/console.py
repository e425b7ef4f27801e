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

    Works with any cluster that speaks the Kafka protocol. [bold]skylog serve[/] starts a console by default.

    [bold]skylog console --bootstrap kafka-1:9092,kafka-2:9092 --read-only[/]
    """
    import asyncio

    chosen = read_settings(config_file, options or [], "--option")
    servers = chosen.pop("bootstrap.servers", None)
    if servers and bootstrap == DEFAULT_BOOTSTRAP:
        bootstrap = servers
    if broker_fd is not None and not (token or user):
        user, password = _login_of_broker()
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
    )
    settings.check()
    start_logging(log_level, log_format)
    from skylog.client import Connection
    from skylog.console.cluster.parent_broker import ParentBroker
    from skylog.console.server.serving import serve

    Connection(bootstrap, settings.options).admin_client()  # report settings that librdkafka rejects now, not on a page
    if listen_fd is not None:
        listener = socket.socket(fileno=listen_fd)
    else:
        listener = listen(host, port)
        stderr.print(f"console at {url_of(listener)} of the cluster at {bootstrap}", markup=False)
    asyncio.run(serve(settings, listener, None if broker_fd is None else ParentBroker(broker_fd)))


def _login_of_broker() -> tuple[str | None, str | None]:
    """Return the user and password that the broker beside this console logs in with, None if it needs no login.

    The console has the rights of this user, so visitors of a broker that asks for logins must be this user.
    """
    from skylog.client.kafka_settings import configured_by_environment

    found = configured_by_environment()
    user, password = (found.get(key) for key in ("sasl.username", "sasl.password"))
    return (str(user), str(password)) if user and password else (None, None)
