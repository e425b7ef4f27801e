"""An ensemble of three real ZooKeeper servers, whose members can be killed and started again."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from skylog.cluster.zookeeper.server import ZooKeeperServer

SIZE = 3


class EnsembleMember(ZooKeeperServer):
    """One of the servers. It answers when it has found a leader, so `start` needs another one that starts too."""

    def __init__(self, data_dir: Path, number: int, port: int, peers: str) -> None:
        super().__init__(data_dir, port=port)
        self._number = number
        self._peers = peers

    def start(self) -> Self:
        (self.data_dir / "data").mkdir(parents=True, exist_ok=True)
        (self.data_dir / "data" / "myid").write_text(f"{self._number}\n")
        return super().start()

    @property
    def is_leading(self) -> bool:
        with socket.create_connection((self.host, self.port), timeout=5.0) as connection:
            connection.sendall(b"srvr")
            return b"Mode: leader" in connection.recv(4096)

    def _ports(self, port: int) -> str:
        return f"{super()._ports(port)}\ninitLimit=40\nsyncLimit=20\n{self._peers}"


class Ensemble:
    """Takes the place of a server of a `ZooKeeperCluster`. Its address has a chroot."""

    def __init__(self, data_dir: Path) -> None:
        ports = _free_ports(3 * SIZE)
        names = range(1, SIZE + 1)
        peers = "\n".join(f"server.{n}=127.0.0.1:{ports[3 * n - 2]}:{ports[3 * n - 1]}" for n in names)
        self.members = [EnsembleMember(data_dir / str(n), n, ports[3 * n - 3], peers) for n in names]

    def __enter__(self) -> Self:
        with ThreadPoolExecutor(SIZE) as threads:
            list(threads.map(EnsembleMember.start, self.members))
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.stop()

    @property
    def address(self) -> str:
        return ",".join(member.address for member in self.members) + "/skylog/test"

    @property
    def leader(self) -> EnsembleMember:
        return next(member for member in self.members if member.is_running and member.is_leading)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]
