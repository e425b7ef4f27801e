"""The options of `skylog serve`, as it describes them to users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from skylog.cli.log_format import LOG_FORMAT_VARIABLE, LogFormat
from skylog.cli.serve.broker_server import run_broker
from skylog.cli.serve.options import ServeOptions
from skylog.console.settings import DEFAULT_PORT, PASSWORD_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE
from skylog.registry import settings as registry_settings

DEFAULTS: Final = ServeOptions()


def serve(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Directory of the logs; created if it does not exist.")
    ] = DEFAULTS.data_dir,
    host: Annotated[
        str | None,
        typer.Option("--host", show_default="127.0.0.1", help="Address to listen on; 0.0.0.0 for all interfaces."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, show_default="9092", help="Port to listen on; 0 picks a free one."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker setting, with Kafka's key; can be repeated."),
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="A properties file with broker settings; --set takes precedence.")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[,…][/CHROOT]",
            help="Join the cluster that is coordinated by this ZooKeeper ensemble; give each broker its own node.id.",
        ),
    ] = None,
    metadata_store: Annotated[str | None, typer.Option("--metadata-store", metavar="HOST:PORT", hidden=True)] = None,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Run the web console, with /metrics and /health.")
    ] = True,
    console_host: Annotated[
        str | None,
        typer.Option(
            "--console-host",
            show_default="127.0.0.1",
            help="Address of the console; other than loopback only with credentials.",
        ),
    ] = None,
    console_port: Annotated[
        int | None,
        typer.Option(
            "--console-port",
            min=0,
            max=65535,
            show_default=str(DEFAULT_PORT),
            help="Port of the console; 0 picks a free one.",
        ),
    ] = None,
    console_read_only: Annotated[
        bool, typer.Option("--console-read-only", help="Reject all changes through the console.")
    ] = False,
    console_token: Annotated[
        str | None,
        typer.Option(
            "--console-token",
            envvar=TOKEN_VARIABLE,
            help="Access token of the console; set it in the environment to hide it from other users.",
        ),
    ] = None,
    console_user: Annotated[
        str | None, typer.Option("--console-user", envvar=USER_VARIABLE, help="User name for the console.")
    ] = None,
    console_password: Annotated[
        str | None, typer.Option("--console-password", envvar=PASSWORD_VARIABLE, help="Password for the console.")
    ] = None,
    registry_port: Annotated[
        int | None,
        typer.Option(
            "--registry-port",
            min=0,
            max=65535,
            show_default="no registry",
            help="Run a schema registry on this port; 0 picks a free one.",
        ),
    ] = None,
    registry_host: Annotated[
        str | None,
        typer.Option(
            "--registry-host",
            show_default="127.0.0.1",
            help="Address of the registry; other than loopback only with credentials.",
        ),
    ] = None,
    registry_read_only: Annotated[
        bool, typer.Option("--registry-read-only", help="Reject all changes through the registry.")
    ] = False,
    registry_token: Annotated[
        str | None,
        typer.Option(
            "--registry-token",
            envvar=registry_settings.TOKEN_VARIABLE,
            help="Access token of the registry; set it in the environment to hide it from other users.",
        ),
    ] = None,
    registry_user: Annotated[
        str | None,
        typer.Option("--registry-user", envvar=registry_settings.USER_VARIABLE, help="User name for the registry."),
    ] = None,
    registry_password: Annotated[
        str | None,
        typer.Option(
            "--registry-password", envvar=registry_settings.PASSWORD_VARIABLE, help="Password for the registry."
        ),
    ] = None,
    metrics_topic: Annotated[
        bool, typer.Option("--metrics-topic", help="Publish the broker's metrics to the topic _skylog_metrics.")
    ] = False,
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            help="Log level on stderr: debug, info, warning or error. Some loggers may have "
            "their own: info,kafka.authorizer.logger=debug.",
        ),
    ] = DEFAULTS.log_level,
    log_format: Annotated[
        LogFormat,
        typer.Option("--log-format", envvar=LOG_FORMAT_VARIABLE, help="Log as text, or as one JSON object per line."),
    ] = DEFAULTS.log_format,
) -> None:
    """Run a broker.

    Prints the line [bold]listening on HOST:PORT[/] when clients can connect. SIGTERM and Ctrl-C stop it cleanly.
    The console is at [bold]http://127.0.0.1:8080[/] unless that port is in use.

    [bold]skylog serve --data-dir data --port 9092 --set num.partitions=4[/]
    """
    run_broker(
        ServeOptions(
            data_dir=data_dir,
            host=host,
            port=port,
            settings=tuple(settings or ()),
            config_file=config_file,
            zookeeper=zookeeper,
            metadata_store=metadata_store,
            console=console,
            console_host=console_host,
            console_port=console_port,
            console_read_only=console_read_only,
            console_token=console_token,
            console_user=console_user,
            console_password=console_password,
            registry_host=registry_host,
            registry_port=registry_port,
            registry_read_only=registry_read_only,
            registry_token=registry_token,
            registry_user=registry_user,
            registry_password=registry_password,
            metrics_topic=metrics_topic,
            log_level=log_level,
            log_format=log_format,
        )
    )
