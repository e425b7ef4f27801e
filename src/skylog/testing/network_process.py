"""What the brokers of a test cluster share: the metadata store and the proxies in front of the brokers, in one process.

    with NetworkProcess([1, 2, 3]) as network:
        network.store.cut("broker-1")
        network.proxies[1].cut()

They have a process of their own because clients in C may keep the test's interpreter busy: librdkafka's rebalance
callbacks, for example, can wait for seconds without releasing it. Meanwhile the sessions of all brokers would expire.

The test sends a call as (target, method, arguments, keywords), and gets (is it an error, result). The process ends when
the test closes the connection, which is its standard input.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any, Final, Self, cast

from skylog.cluster.store import Entry
from skylog.testing.command import start_program
from skylog.testing.loop_thread import LoopThread
from skylog.testing.proxy import ANY_CLIENT, BrokerProxy
from skylog.testing.store_server import StoreServer

_STDIN: Final = 0
_STDERR: Final = 2
_STORE: Final = "store"


class RemoteStore:
    """A `StoreServer` in the network's process."""

    def __init__(self, network: NetworkProcess, address: str) -> None:
        self._network = network
        self.address = address

    def entries(self, prefix: str = "") -> dict[str, Entry]:
        return cast(dict[str, Entry], self._network.call(_STORE, "entries", prefix))

    def expire(self, name: str) -> None:
        self._network.call(_STORE, "expire", name)

    def cut(self, name: str, *, silently: bool = False) -> None:
        self._network.call(_STORE, "cut", name, silently=silently)

    def heal(self, name: str) -> None:
        self._network.call(_STORE, "heal", name)


class RemoteProxy:
    """A `BrokerProxy` in the network's process."""

    def __init__(self, network: NetworkProcess, node_id: int, port: int) -> None:
        self._network = network
        self._node_id = node_id
        self.port = port

    def forward_to(self, port: int) -> None:
        self._network.call(self._node_id, "forward_to", port)

    def cut(self, client_id: str | None = ANY_CLIENT, *, silently: bool = False) -> None:
        self._network.call(self._node_id, "cut", client_id, silently=silently)

    def heal(self, client_id: str | None = ANY_CLIENT) -> None:
        self._network.call(self._node_id, "heal", client_id)


class NetworkProcess:
    """The process, with a proxy for each broker. Can be used from several threads."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        with theirs, open(os.devnull, "w") as nowhere:
            self._process = start_program(__name__, [], theirs.fileno(), nowhere.fileno(), _STDERR)
        self._connection = Connection(ours.detach())
        self._connection.send(list(node_ids))
        address, ports = self._connection.recv()
        self.store = RemoteStore(self, address)
        self.proxies = {node_id: RemoteProxy(self, node_id, port) for node_id, port in ports.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, target: str | int, method: str, *arguments: object, **keywords: object) -> Any:
        """Call a method of the store, or of the proxy of a broker; return its result or raise its exception."""
        with self._lock:
            self._connection.send((target, method, arguments, keywords))
            is_error, result = self._connection.recv()
        if is_error:
            raise result
        return result

    def close(self) -> None:
        """Reset all connections, and end the process."""
        self._connection.close()
        self._process.wait()


def _serve(connection: Connection) -> None:
    """Own the store and the proxies, and make calls until the test is gone. Runs in the process."""
    thread = LoopThread("proxies")
    proxies = {node_id: BrokerProxy(thread) for node_id in connection.recv()}
    store = StoreServer()
    targets = {_STORE: store, **proxies}
    connection.send((store.address, {node_id: proxy.port for node_id, proxy in proxies.items()}))
    while True:
        try:
            target, method, arguments, keywords = connection.recv()
        except EOFError:
            return
        try:
            answer = False, getattr(targets[target], method)(*arguments, **keywords)
        except Exception as error:
            answer = True, error
        connection.send(answer)


if __name__ == "__main__":
    _serve(Connection(os.dup(_STDIN)))
