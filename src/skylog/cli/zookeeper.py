"""`skylog zookeeper`: runs a ZooKeeper server."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from skylog.cli.stop_signals import stop_signals
from skylog.errors import SkylogError


def zookeeper(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Directory of its data and its log; created if it does not exist.")
    ] = Path("zookeeper-data"),
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 2181,
    secrets: Annotated[
        Path | None,
        typer.Option(
            "--secrets",
            metavar="DIR",
            help="Serve only brokers that log in over TLS, with the files that skylog secure has written to DIR.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a ZooKeeper server, for a cluster of brokers on one machine.

    It is Apache ZooKeeper 3.9, from the jars that PySpark installs. Prints the line [bold]listening on HOST:PORT[/]
    when it answers. SIGTERM and Ctrl-C stop it. Its warnings are in [bold]zookeeper.log[/] in the data directory.
    Requires Java 17 and [bold]pip install 'skylog\\[spark]'[/].

    [bold]skylog zookeeper --data-dir zookeeper --port 2181[/]
    """
    from skylog.cluster.zookeeper.server import ZooKeeperServer
    from skylog.development.zookeeper_security import security_of

    for number in stop_signals():
        signal.signal(number, lambda *_: sys.exit(0))
    security = None if secrets is None else security_of(secrets)
    with ZooKeeperServer(data_dir, host, port, security=security) as server:
        sys.stdout.write(f"listening on {server.address}\n")
        sys.stdout.flush()
        server.wait()
        raise SkylogError(f"ZooKeeper has ended by itself; the end of its log: {server.log()[-500:].strip()}")
