"""The socket on which an HTTP server listens."""

from __future__ import annotations

import socket
from typing import Final

from skylog.errors import SkylogError

BACKLOG: Final = 128


def listen(host: str, port: int, port_option: str = "--port", server: str = "console") -> socket.socket:
    """Open a listening socket; port 0 picks a free one.

    Raises SkylogError if the port is in use or the host is not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setblocking(False)
    except OSError as error:
        raise SkylogError(f"the {server} cannot listen on {host}: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise SkylogError(
            f"the {server} cannot listen on {host}:{port}: {reason}; choose another {port_option}, or 0 for a free one"
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
