"""The console of a development cluster: `skylog console` as a child process."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from skylog.console.settings import DEFAULT_PORT
from skylog.development.command_process import CommandProcess
from skylog.development.ports import ANY_PORT, HOST, is_free
from skylog.web.listening import listen, url_of

PORT_OPTION: Final = "--console-port"


def open_console(port: int | None, remembered: int | None) -> socket.socket:
    """Open the console's socket. Raises SkylogError if a port that was asked for is in use.

    Without one, it is the port of the last run or the default port, or any port if that is in use.
    """
    if port is None:
        port = DEFAULT_PORT if remembered is None else remembered
        port = port if is_free(port) else ANY_PORT
    return listen(HOST, port, PORT_OPTION)


class ClusterConsole(CommandProcess):
    """The console. It serves the visitors of a socket, which stays open while it is restarted."""

    def __init__(self, home: Path, listener: socket.socket, bootstrap: str, config_file: Path | None = None) -> None:
        """`config_file` has the settings with which it connects, if it needs any."""
        super().__init__(home / "console.log", [listener.fileno()])
        self._listener = listener
        self._bootstrap = bootstrap
        self._options = [] if config_file is None else ["--config", str(config_file)]

    @property
    def url(self) -> str:
        return url_of(self._listener)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Start or restart it. Visitors who come earlier wait in the socket's backlog."""
        where = ["--bootstrap", self._bootstrap, "--host", HOST, "--fd", str(self._listener.fileno())]
        self._launch(["console", *where, *self._options])
