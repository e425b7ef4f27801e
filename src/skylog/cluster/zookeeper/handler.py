"""The sockets and threads that kazoo uses for one session."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from skylog.cluster.zookeeper.access import PLAIN, ZooKeeperAccess
from skylog.errors import ConfigError


class SessionHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Opens connections until `refuse` is called, so that kazoo cannot begin a new session after the old one.

    kazoo's thread opens the connections; any thread may call the other methods. After `refuse` and `drop_connection`
    nothing is sent any more.
    """

    def __init__(self, connect_timeout_s: float, access: ZooKeeperAccess = PLAIN) -> None:
        super().__init__()
        self._access = access
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._is_refusing = False
        self._socket: socket.socket | None = None
        self.attempt_began_at = 0.0
        self.last_error: OSError | None = None

    def create_connection(self, *arguments: Any, **options: Any) -> socket.socket:
        if self._is_refusing:
            raise OSError("the session has ended")
        self.attempt_began_at = time.monotonic()
        options["timeout"] = self._connect_timeout_s  # kazoo's is the whole session timeout
        try:
            connection = self._encrypted(super().create_connection(*arguments, **options), options.get("hostname"))
        except OSError as error:
            self.last_error = error
            raise
        with self._lock:
            if self._is_refusing:
                connection.close()
                raise OSError("the session has ended")
            self._socket = connection
        return connection

    def _encrypted(self, connection: socket.socket, host: str | None) -> socket.socket:
        """Return the connection with TLS, if it is to have that. Waits as long as connecting may take."""
        try:
            context = self._access.tls_context()
            if context is None:
                return connection
            connection.settimeout(self._connect_timeout_s)
            return context.wrap_socket(connection, server_hostname=host)
        except ConfigError as error:
            connection.close()
            raise OSError(str(error)) from error
        except OSError:
            connection.close()
            raise

    def create_socket_pair(self) -> tuple[socket.socket, _WakeupSocket]:
        reader, writer = super().create_socket_pair()
        return reader, _WakeupSocket(writer)

    def refuse(self) -> None:
        """Open no further connection."""
        with self._lock:
            self._is_refusing = True

    def drop_connection(self) -> None:
        """Close the connection, as the server would. kazoo then opens another one, unless it is refused."""
        with self._lock:
            current, self._socket = self._socket, None
        if current is not None:
            with contextlib.suppress(OSError):  # it was closed already
                # Not the method of an SSLSocket: that ends the encryption first, while kazoo's thread may send.
                socket.socket.shutdown(current, socket.SHUT_RDWR)


class _WakeupSocket:
    """The socket through which kazoo wakes its thread: one byte for each request.

    kazoo's own socket blocks the caller when it is full. It fills up although the number of requests is limited:
    kazoo does not read the bytes of requests that fail. A full socket has more bytes than there are requests, so this
    class can drop a byte then.
    """

    def __init__(self, writer: socket.socket) -> None:
        writer.setblocking(False)
        self._writer = writer
        self.close = writer.close

    def send(self, data: bytes) -> None:
        with contextlib.suppress(BlockingIOError):
            self._writer.send(data)
