"""`skylog serve`: run a broker in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skylog.cli.output import stderr
from skylog.config import read_properties
from skylog.errors import ConfigError, SkylogError

# The broker and its event loop are imported by those functions that use them: the other commands start without.
if TYPE_CHECKING:
    from skylog.broker import ServerConfig

logger = logging.getLogger(__name__)


def serve(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Where the logs are kept; made if it is not there.")
    ] = Path("skylog-data"),
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for every interface.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 9092,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A configuration key of Kafka's; may be given many times."),
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="A properties file with such keys; --set goes before it.")
    ] = None,
    log_level: Annotated[
        str, typer.Option("--log-level", help="What to log on stderr: debug, info, warning or error.")
    ] = "info",
) -> None:
    """Run a broker.

    Prints one line, [bold]listening on HOST:PORT[/], when clients can connect. SIGTERM and Ctrl-C stop it cleanly.

    [bold]skylog serve --data-dir data --port 9092 --set num.partitions=4[/]
    """
    import uvloop

    _start_logging(log_level)
    config = _read_config(config_file, settings or [])
    _raise_file_limit()
    uvloop.run(_run(data_dir, host, port, config))


async def _run(data_dir: Path, host: str, port: int, config: ServerConfig) -> None:
    import asyncio

    from skylog.audit.stored_tier import StoredTier
    from skylog.broker import Broker

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    broker = Broker(data_dir, config)
    try:
        bound = await broker.start(host, port)
    except OSError as error:
        raise SkylogError(f"cannot listen on {host}:{port}: {error.strerror or error}; is --port in use?") from error
    audit = StoredTier(broker)
    audit.start()
    address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
    sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()
    _greet(address)
    await stopping.wait()
    await audit.stop()
    await broker.stop()


def _greet(address: str) -> None:
    """The first commands to type, for people: on stderr, so that scripts read one line on stdout."""
    command = "skylog" if shutil.which("skylog") else sys.argv[0]
    option = "" if address == "127.0.0.1:9092" else f" --bootstrap {address}"
    stderr.print("\nTry it, in another terminal:")
    stderr.print(f"  [bold cyan]echo hello | {command} produce greetings{option}[/]")
    stderr.print(f"  [bold cyan]{command} tail greetings{option}[/]\n")


def _read_config(path: Path | None, settings: list[str]) -> ServerConfig:
    from skylog.broker import ServerConfig

    values: dict[str, str] = {}
    if path is not None:
        try:
            values = read_properties(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read --config {path}: {error}") from error
    for text in settings:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--set {text}: expected KEY=VALUE")
        values[key.strip()] = value.strip()
    return ServerConfig.parse(values)


def _start_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"--log-level {level}: expected debug, info, warning or error")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr)


def _raise_file_limit() -> None:
    """Each partition and each client needs a descriptor: take all that the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        logger.debug("raised the limit of open files from %d to %d", soft, hard)
