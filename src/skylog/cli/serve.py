"""`skylog serve`: run a broker in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import resource
import shutil
import signal
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer

from skylog.cli.log_format import LOG_FORMAT_VARIABLE, LogFormat, start_logging
from skylog.cli.options import read_settings
from skylog.cli.output import stderr
from skylog.console.listening import listen, url_of
from skylog.console.settings import DEFAULT_PORT, PASSWORD_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE, Settings
from skylog.errors import SkylogError

# The broker and its event loop are imported by those functions that use them: the other commands start without.
if TYPE_CHECKING:
    from skylog.broker import Broker, ServerConfig

logger = logging.getLogger(__name__)

REACHABLE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a client on this machine finds a broker that listens on every interface."""


class Beside(Protocol):
    """Something that runs beside a broker, from after its start to before its stop."""

    @property
    def failures(self) -> int: ...
    def start(self) -> None: ...
    async def stop(self) -> None: ...


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
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Show the cluster in the browser; with /metrics and /health.")
    ] = True,
    console_host: Annotated[
        str | None,
        typer.Option(
            "--console-host",
            show_default="127.0.0.1",
            help="Address of the console; beyond this machine only with credentials.",
        ),
    ] = None,
    console_port: Annotated[
        int | None,
        typer.Option(
            "--console-port", min=0, max=65535, show_default=str(DEFAULT_PORT), help="Its port; 0 picks a free one."
        ),
    ] = None,
    console_read_only: Annotated[
        bool, typer.Option("--console-read-only", help="Visitors of the console look, but change nothing.")
    ] = False,
    console_token: Annotated[
        str | None,
        typer.Option(
            "--console-token",
            envvar=TOKEN_VARIABLE,
            help="What visitors must show; better in the environment, where other users don't see it.",
        ),
    ] = None,
    console_user: Annotated[
        str | None, typer.Option("--console-user", envvar=USER_VARIABLE, help="A user who may log in to the console.")
    ] = None,
    console_password: Annotated[
        str | None, typer.Option("--console-password", envvar=PASSWORD_VARIABLE, help="The password of that user.")
    ] = None,
    metrics_topic: Annotated[
        bool, typer.Option("--metrics-topic", help="Publish the broker's metrics to the topic _skylog_metrics.")
    ] = False,
    log_level: Annotated[
        str, typer.Option("--log-level", help="What to log on stderr: debug, info, warning or error.")
    ] = "info",
    log_format: Annotated[
        LogFormat,
        typer.Option("--log-format", envvar=LOG_FORMAT_VARIABLE, help="Text, or one JSON object per line."),
    ] = LogFormat.TEXT,
) -> None:
    """Run a broker.

    Prints one line, [bold]listening on HOST:PORT[/], when clients can connect. SIGTERM and Ctrl-C stop it cleanly.
    The console is at [bold]http://127.0.0.1:8080[/] unless that port is in use.

    [bold]skylog serve --data-dir data --port 9092 --set num.partitions=4[/]
    """
    import uvloop

    start_logging(log_level, log_format)
    config = _read_config(config_file, settings or [])
    wanted = None
    if console:
        credentials = (console_token, console_user, console_password)
        where = (console_host or "127.0.0.1", DEFAULT_PORT if console_port is None else console_port)
        wanted = Settings("", *where, console_read_only, *credentials)
        wanted.check("--console-")
    _raise_file_limit()
    may_lack_console = console_port is None and console_host is None
    uvloop.run(Serving(data_dir, host, port, config, wanted, may_lack_console, metrics_topic, log_format).run())


@dataclass(frozen=True, slots=True)
class Serving:
    """A broker and what runs beside it, as the options say.

    `may_lack_console`: nobody has said where the console is to be, so where its address is taken there is none.
    """

    data_dir: Path
    host: str
    port: int
    config: ServerConfig
    console: Settings | None
    may_lack_console: bool
    metrics_topic: bool
    log_format: LogFormat

    async def run(self) -> None:
        """Until SIGTERM or Ctrl-C. Raises SkylogError where something cannot be started."""
        import asyncio

        from skylog.broker import Broker
        from skylog.broker.collector import collect_rarely

        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        listening = self._open_console()
        broker = Broker(self.data_dir, self.config)
        try:
            bound = await broker.start(self.host, self.port)
        except OSError as error:
            where = f"{self.host}:{self.port}"
            raise SkylogError(f"cannot listen on {where}: {error.strerror or error}; is --port in use?") from error
        beside = self._start_beside(broker, bound, listening)
        collect_rarely()
        self._announce(_address(self.host, bound), None if listening is None else url_of(listening))
        await stopping.wait()
        for each in reversed(beside):
            await each.stop()
        await broker.stop()

    def _open_console(self) -> socket.socket | None:
        """The console's socket, before anything else: a port in use is known at once. None without a console."""
        if self.console is None:
            return None
        try:
            return listen(self.console.host, self.console.port, "--console-port")
        except SkylogError as error:
            if not self.may_lack_console:
                raise
            logger.warning("no console: %s", error)
            return None

    def _start_beside(self, broker: Broker, bound: int, listening: socket.socket | None) -> list[Beside]:
        from skylog.audit.stored_tier import StoredTier
        from skylog.broker.metrics import Health, MetricsTopic
        from skylog.cli.console_process import ConsoleProcess, console_command, console_secrets

        beside: dict[str, Beside] = {"audit": StoredTier(broker)}
        if self.metrics_topic:
            beside["metrics topic"] = MetricsTopic(broker)
        if self.console is not None and listening is not None:
            settings = replace(self.console, bootstrap=_address(REACHABLE.get(self.host, self.host), bound))
            environment = console_secrets(settings) | {LOG_FORMAT_VARIABLE: self.log_format.value}
            command = console_command(settings)
            health = Health(broker, apart_from={"console"})
            beside["console"] = ConsoleProcess(broker, health, listening, command, environment)
        broker.background |= beside
        for each in beside.values():
            each.start()
        return list(beside.values())

    def _announce(self, address: str, console_url: str | None) -> None:
        """On stdout the one line that scripts wait for; on stderr, before it, what people want to know."""
        if console_url is not None:
            if self.log_format is LogFormat.TEXT:
                stderr.print(f"console at {console_url}", markup=False)
            else:
                logger.info("console at %s", console_url)
        sys.stdout.write(f"listening on {address}\n")
        sys.stdout.flush()
        if self.log_format is LogFormat.TEXT:
            _greet(address)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _greet(address: str) -> None:
    """The first commands to type, for people: on stderr, so that scripts read one line on stdout."""
    command = "skylog" if shutil.which("skylog") else sys.argv[0]
    option = "" if address == "127.0.0.1:9092" else f" --bootstrap {address}"
    stderr.print("\nTry it, in another terminal:")
    stderr.print(f"  [bold cyan]echo hello | {command} produce greetings{option}[/]")
    stderr.print(f"  [bold cyan]{command} tail greetings{option}[/]\n")


def _read_config(path: Path | None, settings: list[str]) -> ServerConfig:
    from skylog.broker import ServerConfig

    return ServerConfig.parse(read_settings(path, settings, "--set"))


def _raise_file_limit() -> None:
    """Each partition and each client needs a descriptor: take all that the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        logger.debug("raised the limit of open files from %d to %d", soft, hard)
