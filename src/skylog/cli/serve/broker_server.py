"""Runs a broker in the foreground until SIGTERM or Ctrl-C, with the console and the other tasks beside it."""

from __future__ import annotations

import errno
import gc
import logging
import resource
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from skylog.cli.log_format import LOG_FORMAT_VARIABLE, LogFormat, start_logging
from skylog.cli.serve.options import ServeOptions
from skylog.cli.serve.registry_command import registry_command, registry_secrets
from skylog.cli.serve.store_session import OpenSession, session_opener
from skylog.cli.settings import read_settings
from skylog.cli.stop_signals import stop_signals
from skylog.console.settings import DEFAULT_PORT, Settings
from skylog.errors import ConfigError, SkylogError
from skylog.registry.settings import DEFAULT_TOPIC, URL_VARIABLE, RegistrySettings
from skylog.web.access import ASKS_NOBODY
from skylog.web.listening import listen, url_of

# Functions import the broker and its event loop when they need them, so that `skylog serve --help` does not.
if TYPE_CHECKING:
    from skylog.broker import Broker, ServerConfig

logger = logging.getLogger(__name__)

REACHABLE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""The local address of a broker that listens on all interfaces."""

DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})


class BrokerCompanion(Protocol):
    """A background task that starts after the broker and stops before it."""

    @property
    def failures(self) -> int: ...
    def start(self) -> None: ...
    async def stop(self) -> None: ...


def run_broker(options: ServeOptions) -> None:
    """Run a broker and its console. Raises SkylogError if it cannot be started as the options say."""
    gc.disable()  # until the broker is started: the modules it imports are not garbage, and a collection takes a while
    from skylog.fastest_loop import run_on_fastest_loop

    start_logging(options.log_level, options.log_format)
    config = _read_config(options.config_file, options.settings)
    asks_users = _own_user(config) is not None
    console_settings = None
    if options.console:
        credentials = (options.console_token, options.console_user, options.console_password)
        port = DEFAULT_PORT if options.console_port is None else options.console_port
        where = (options.console_host or "127.0.0.1", port)
        console_settings = Settings("", *where, options.console_read_only, *credentials)
        has_own = console_settings.requires_credentials
        console_settings = replace(console_settings, asks_users=asks_users and not has_own)
        console_settings.check("--console-")
    registry_settings = None
    if options.registry_port is not None:
        registry_settings = RegistrySettings(
            "",
            options.registry_host or "127.0.0.1",
            options.registry_port,
            options.registry_read_only,
            options.registry_token,
            options.registry_user,
            options.registry_password,
        )
        has_own = registry_settings.requires_credentials
        registry_settings = replace(registry_settings, asks_users=asks_users and not has_own)
        registry_settings.check("--registry-")
    elif options.registry_host is not None:
        raise ConfigError("--registry-host has no effect without --registry-port; set the port of the registry too")
    open_session = session_opener(options.zookeeper, options.metadata_store, config)
    _raise_file_limit()
    addresses = config.security.addresses()
    host = options.host or (addresses[0].host if addresses else "127.0.0.1")
    server = BrokerServer(
        options.data_dir,
        host,
        options.port,
        config,
        open_session,
        console_settings,
        registry_settings,
        is_console_optional=options.console_port is None and options.console_host is None,
        metrics_topic=options.metrics_topic,
        log_format=options.log_format,
    )
    run_on_fastest_loop(server.run())


@dataclass(frozen=True, slots=True)
class BrokerServer:
    """A broker and the background tasks that run beside it.

    `open_session` connects it to the metadata store of a cluster; None for a standalone broker.
    `is_console_optional`: no console address was given, so if the default port is in use, it runs without a console.
    """

    data_dir: Path
    host: str
    port: int | None
    config: ServerConfig
    open_session: OpenSession | None
    console: Settings | None
    registry: RegistrySettings | None
    is_console_optional: bool
    metrics_topic: bool
    log_format: LogFormat

    async def run(self) -> None:
        """Run until SIGTERM or Ctrl-C. Raises SkylogError if a part cannot be started."""
        import asyncio

        from skylog.broker.garbage_collection import tune_garbage_collector

        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, stopping.set)
        listening = self._open_console()
        registry = self._open_registry()
        starting, interrupted = asyncio.create_task(self._start_broker()), asyncio.create_task(stopping.wait())
        await asyncio.wait({starting, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if starting.cancel():  # it may wait for ZooKeeper
            await asyncio.gather(starting, return_exceptions=True)
            raise SkylogError("interrupted before the broker was started")
        broker, bound = starting.result()
        companions = self._start_companions(broker, bound, listening, registry)
        tune_garbage_collector()
        self._announce(_address(self.host, bound), {"console": listening, "registry": registry})
        await stopping.wait()
        for each in reversed(companions):
            await each.stop()
        await broker.stop()

    async def _start_broker(self) -> tuple[Broker, int]:
        """Return the broker and its port."""
        broker = await self._create_broker()
        try:
            return broker, await broker.start(self.host, self.port)
        except OSError as error:
            if _is_of_disk(error):
                raise SkylogError(f"cannot use --data-dir {self.data_dir}: {error.strerror or error}") from error
            where = f"{self.host}:{9092 if self.port is None else self.port}"
            hint = "; choose another --port" if error.errno == errno.EADDRINUSE else "; check --host and --port"
            raise SkylogError(f"cannot listen on {where}: {error.strerror or error}{hint}") from error

    async def _create_broker(self) -> Broker:
        if self.open_session is None:
            from skylog.broker import standalone_broker

            return standalone_broker(self.data_dir, self.config)
        from skylog.broker.clustered import clustered_broker

        return await clustered_broker(self.data_dir, self.open_session, self.config)

    def _open_console(self) -> socket.socket | None:
        """Open the console's socket first, so that a port in use is an immediate error. None without a console."""
        if self.console is None:
            return None
        try:
            return listen(self.console.host, self.console.port, "--console-port")
        except SkylogError as error:
            if not self.is_console_optional:
                raise
            logger.warning("no console: %s", error)
            return None

    def _open_registry(self) -> socket.socket | None:
        """Open the registry's socket. None without a registry."""
        if self.registry is None:
            return None
        return listen(self.registry.host, self.registry.port, "--registry-port", "registry")

    def _start_companions(
        self, broker: Broker, bound: int, listening: socket.socket | None, registry: socket.socket | None
    ) -> list[BrokerCompanion]:
        from skylog.audit.stored_tier import StoredTier
        from skylog.broker.metrics import Health, MetricsTopic
        from skylog.cli.serve.companion_process import CompanionProcess
        from skylog.cli.serve.console_process import ConsoleProcess, console_command, console_secrets

        companions: dict[str, BrokerCompanion] = {"audit": StoredTier(broker)}
        if self.metrics_topic:
            companions["metrics topic"] = MetricsTopic(broker)
        if self.console is not None and listening is not None:
            settings = replace(self.console, bootstrap=_address(REACHABLE.get(self.host, self.host), bound))
            environment = console_secrets(settings) | {LOG_FORMAT_VARIABLE: self.log_format.value}
            environment |= self._registry_access(registry)
            command = console_command(settings, inherits_login=self.registry is not None and self.registry.asks_users)
            health = Health(broker, ignored_jobs={"console"})
            companions["console"] = ConsoleProcess(
                broker, health, listening, command, environment, client_settings=self._client_settings()
            )
        if self.registry is not None and registry is not None:
            own = replace(self.registry, bootstrap=_address(REACHABLE.get(self.host, self.host), bound))
            environment = registry_secrets(own) | {LOG_FORMAT_VARIABLE: self.log_format.value}
            companions["registry"] = CompanionProcess(
                "registry", registry, registry_command(own), environment, client_settings=self._client_settings()
            )
        broker.background |= companions
        for each in companions.values():
            each.start()
        return list(companions.values())

    def _registry_access(self, registry: socket.socket | None) -> dict[str, str]:
        """Return how the console reaches the registry, if there is one."""
        if self.registry is None or registry is None:
            return {}
        return {URL_VARIABLE: url_of(registry)} | registry_secrets(self.registry)

    def _client_settings(self) -> str:
        """Return how companions reach the first listener, as properties.

        The settings of this shell's clients may be meant for another cluster.
        """
        addresses = self.config.security.addresses()
        if not addresses:
            return ""
        from skylog.security.own_client import own_client_settings

        found = own_client_settings(self.config.security, addresses[0].name)
        return "\n".join("{}={}".format(key, value.replace("\n", "\\n")) for key, value in found.items())

    def _announce(self, address: str, servers: Mapping[str, socket.socket | None]) -> None:
        """Print the line that scripts wait for on stdout. Everything else goes to stderr, before it."""
        for name, listening in servers.items():
            if listening is None:
                continue
            if self.log_format is LogFormat.TEXT:
                _print(f"{name} at {url_of(listening)}")
                self._announce_login(name)
            else:
                logger.info("%s at %s", name, url_of(listening))
        sys.stdout.write(f"listening on {address}\n")
        sys.stdout.flush()
        if self.log_format is LogFormat.TEXT:
            _greet(address, self._client_file())

    def _announce_login(self, name: str) -> None:
        user, settings = _own_user(self.config), self.console if name == "console" else self.registry
        assert settings is not None
        if settings.asks_users:
            right = "may alter the cluster" if name == "console" else f"has rights to the topic {DEFAULT_TOPIC}"
            _print(f"log in to the {name} as {user}, or as a user who {right}")
        elif not settings.requires_credentials and self._client_settings():
            _print(ASKS_NOBODY.format(name))

    def _client_file(self) -> Path | None:
        """Return the file that clients need for the first listener, None if it is plain text."""
        security = self.config.security
        addresses = security.addresses()
        if not addresses or security.protocol_of(addresses[0].name).name == "PLAINTEXT":
            return None
        from skylog.security.development_set import CLIENT

        beside = Path(security.of_listener(addresses[0].name).ssl_truststore_location).parent / CLIENT
        return beside if beside.is_file() else Path(CLIENT)


def _is_of_disk(error: OSError) -> bool:
    """Whether a file caused an error, not a socket."""
    return error.filename is not None or error.errno in DISK_ERRORS


def _own_user(config: ServerConfig) -> str | None:
    """Return the user as whom companions log in to the first listener, None if that needs no password."""
    from skylog.security.own_client import own_login

    addresses = config.security.addresses()
    if not addresses or not config.security.protocol_of(addresses[0].name).has_login:
        return None
    login = own_login(config.security, addresses[0].name)
    return None if login is None else login[1]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _greet(address: str, client_file: Path | None) -> None:
    """Print example commands on stderr. Scripts read exactly one line on stdout."""
    command = "skylog" if shutil.which("skylog") else "python -m skylog"
    option = "" if address == "127.0.0.1:9092" else f" --bootstrap {address}"
    _print("\nTry it, in another terminal:")
    if client_file is not None:
        _print(f"  export SKYLOG_CONFIG={client_file}", "bold cyan")
    _print(f"  echo hello | {command} produce greetings{option}", "bold cyan")
    _print(f"  {command} tail greetings{option}\n", "bold cyan")


def _print(text: str, style: str = "") -> None:
    """Print text on stderr, in a style if that is a terminal. Without one, rich is not imported."""
    if sys.stderr.isatty():
        from skylog.terminal import stderr

        stderr.print(text, style=style, markup=False)
    else:
        sys.stderr.write(f"{text}\n")


def _read_config(path: Path | None, settings: Sequence[str]) -> ServerConfig:
    from skylog.broker import ServerConfig

    return ServerConfig.parse(read_settings(path, settings, "--set"))


def _raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: each partition and client needs a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        logger.debug("raised the limit of open files from %d to %d", soft, hard)
