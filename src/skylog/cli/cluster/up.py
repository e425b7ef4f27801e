"""`skylog cluster up`: runs a development cluster until SIGTERM or Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skylog.cli.log_format import check_level
from skylog.cli.options import DEFAULT_BOOTSTRAP, read_settings
from skylog.cli.stop_signals import stop_signals
from skylog.console.settings import DEFAULT_PORT
from skylog.printable import escape_controls
from skylog.security.development_set import ADMIN
from skylog.terminal import note, stderr

if TYPE_CHECKING:
    from types import FrameType

    from skylog.development import DevelopmentCluster


def up(
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers", min=1, max=100, show_default="3, or as in the last run", help="The number of brokers."
        ),
    ] = None,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Directory of all data and logs; a second run continues with them.")
    ] = Path("skylog-cluster"),
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            show_default="9092, or as in the last run",
            help="Port of the first broker; the others get the next ones. 0 picks free ports.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of all brokers, with Kafka's key; can be repeated."),
    ] = None,
    console: Annotated[bool, typer.Option("--console/--no-console", help="Run the web console.")] = True,
    console_port: Annotated[
        int | None,
        typer.Option(
            "--console-port",
            min=0,
            max=65535,
            show_default=f"{DEFAULT_PORT}, or a free one",
            help="Port of the console; 0 picks a free one.",
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="With TLS, logins and ACLs, also in later runs; the files of its clients are in DATA_DIR/secrets.",
        ),
    ] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", help="Log level of the brokers: debug, info, warning or error.")
    ] = "info",
) -> None:
    """Run a cluster on this machine: ZooKeeper, brokers and a console.

    Prints the line [bold]listening on HOST:PORT,HOST:PORT,…[/] when clients can connect. SIGTERM and Ctrl-C stop it
    cleanly. A process that dies is started again after a second. Topics have three replicas by default, if there are
    as many brokers. Requires Java 17 and [bold]pip install 'skylog\\[spark]'[/].

    [bold]skylog cluster up[/]

    [bold]skylog cluster up --brokers 5 --port 0 --set num.partitions=6 --data-dir data[/]
    """
    from skylog.broker import ServerConfig
    from skylog.development import ClusterPlan, DevelopmentCluster, secrets_of
    from skylog.security.development_set import is_development_set

    check_level(log_level)
    chosen = read_settings(None, settings or [], "--set")
    ServerConfig.parse(chosen)  # reports a mistake now, and not as the error of each broker
    secrets = secrets_of(data_dir)
    is_secure = secure or is_development_set(secrets)
    plan = ClusterPlan(brokers, port, console, console_port, chosen, log_level, secrets if is_secure else None)
    for number in stop_signals():
        signal.signal(number, _interrupt)
    try:
        with DevelopmentCluster(data_dir, plan, report=_report) as cluster:
            _announce(cluster)
            threading.Event().wait()
    except KeyboardInterrupt:
        return


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop cleanly. A second signal ends this process at once, and the kernel kills all others with it.

    A terminal that is closed sends SIGHUP several times, and takes no more output.
    """
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if number != signal.SIGHUP:
        note("stopping; another Ctrl-C kills everything")
    raise KeyboardInterrupt


def _report(event: str) -> None:
    stderr.print(escape_controls(event), markup=False)


def _announce(cluster: DevelopmentCluster) -> None:
    """Print the line that scripts wait for on stdout. Everything else goes to stderr."""
    if cluster.console is not None:
        _report(f"console at {cluster.console.url}")
        if cluster.client_file is not None:
            _report(f"log in to the console as {ADMIN}, with the password in {cluster.client_file}")
    sys.stdout.write(f"listening on {cluster.bootstrap}\n")
    sys.stdout.flush()
    command = "skylog" if shutil.which("skylog") else "python -m skylog"
    victim = next(iter(cluster.brokers.values()))
    stderr.print("\nTry it, in another terminal:")
    if cluster.client_file is not None:
        stderr.print(f"  [bold cyan]export SKYLOG_CONFIG={cluster.client_file}[/]")
    if cluster.bootstrap != DEFAULT_BOOTSTRAP:
        stderr.print(f"  [bold cyan]export SKYLOG_BOOTSTRAP={cluster.bootstrap}[/]")
    stderr.print(f"  [bold cyan]echo hello | {command} produce greetings[/]")
    stderr.print(f"  [bold cyan]{command} tail greetings --from-beginning[/]")
    stderr.print(f"  [bold cyan]kill -9 {victim.pid}[/]     broker {victim.node_id}, which comes back")
    stderr.print(f"  [bold cyan]{command} topics describe greetings[/]     leaders and in-sync replicas")
    stderr.print(f"\nLogs and data are in {cluster.data_dir}. Ctrl-C stops the cluster.\n", markup=False)
