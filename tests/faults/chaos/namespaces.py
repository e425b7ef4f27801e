"""Brokers in network namespaces: each has an address of its own, and its link can be cut for real.

A bridge connects the namespaces with the clients and ZooKeeper, which stay in the ordinary one. A cut takes the link
down: nothing is reset, segments are simply lost. A cut link in one direction is a black hole in the routes of the
sender. Delay and loss need the kernel's `netem`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.testing import BrokerProcess
from skylog.testing.command import Command, connect_command
from tests.broker.raw import ClosedByBrokerError, RawClient

from ..cluster.zookeeper_cluster import ZooKeeperCluster

PORT: Final = 9092
DELAY: Final = "delay 100ms 20ms loss 1%"


class NoNamespacesError(Exception):
    """Network namespaces cannot be used here, and why."""


class Network:
    """A bridge and the namespaces behind it, until `close`. Raises NoNamespacesError."""

    def __init__(self, size: int) -> None:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise NoNamespacesError("network namespaces need root and iproute2")
        self._number = os.getpid() % 250
        self._size = size
        self._bridge = f"skc{self._number}"
        self.has_netem = False
        try:
            self._build()
        except subprocess.CalledProcessError as error:
            self.close()
            raise NoNamespacesError(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error

    def _build(self) -> None:
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{self.host(254)}/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for node in range(1, self._size + 1):
            name, outer, inner = self.namespace(node), self._link(node), f"ski{self._number}-{node}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
            _run("ip", "link", "set", inner, "netns", name, "name", "eth0")
            _run("ip", "link", "set", outer, "master", self._bridge, "up")
            self._inside(node, "ip", "addr", "add", f"{self.host(node)}/24", "dev", "eth0")
            self._inside(node, "ip", "link", "set", "eth0", "up")
            self._inside(node, "ip", "link", "set", "lo", "up")
        with suppress(subprocess.CalledProcessError):
            self.delay(1)
            self.has_netem = True
            self.undelay(1)

    def host(self, number: int) -> str:
        return f"10.213.{self._number}.{number}"

    def namespace(self, node: int) -> str:
        return f"skylog-chaos-{self._number}-{node}"

    def _link(self, node: int) -> str:
        return f"sko{self._number}-{node}"

    def _inside(self, node: int, *command: str) -> None:
        _run("ip", "netns", "exec", self.namespace(node), *command)

    def cut(self, node: int) -> None:
        _run("ip", "link", "set", self._link(node), "down")

    def heal(self, node: int) -> None:
        _run("ip", "link", "set", self._link(node), "up")

    def block(self, source: int, target: int) -> None:
        """Lose what one broker sends to another."""
        self._inside(source, "ip", "route", "replace", "blackhole", f"{self.host(target)}/32")

    def unblock(self, source: int, target: int) -> None:
        with suppress(subprocess.CalledProcessError):  # it was not blocked
            self._inside(source, "ip", "route", "del", "blackhole", f"{self.host(target)}/32")

    def delay(self, node: int) -> None:
        self._inside(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", *DELAY.split())

    def undelay(self, node: int) -> None:
        with suppress(subprocess.CalledProcessError):
            self._inside(node, "tc", "qdisc", "del", "dev", "eth0", "root")

    def close(self) -> None:
        for node in range(1, self._size + 1):
            with suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", self.namespace(node))
            with suppress(subprocess.CalledProcessError):
                _run("ip", "link", "del", self._link(node))
        with suppress(subprocess.CalledProcessError):
            _run("ip", "link", "del", self._bridge)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


class NamespacedBroker(BrokerProcess):
    """A broker in the namespace of its node id."""

    def __init__(
        self, network: Network, data_dir: Path | None, settings: Mapping[str, str], *, options: Sequence[str]
    ) -> None:
        super().__init__(data_dir, settings, PORT, options=options)
        self._network = network

    def _launch(self, arguments: list[str], stderr: int) -> Command:
        node = int(self.settings["node.id"])
        inside = ["ip", "netns", "exec", self._network.namespace(node)]
        command = [*inside, sys.executable, "-P", "-m", "skylog.lifeline", *arguments]
        return connect_command(
            lambda stdin, stdout: subprocess.Popen(
                [*command, "--host", self._network.host(node)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        )


class NamespaceCluster(ZooKeeperCluster):
    """Three brokers in namespaces, on a ZooKeeper server at the bridge."""

    def __init__(self, network: Network, server: ZooKeeperServer, session_timeout_ms: int) -> None:
        self._namespaces = network
        self.process_type = cast(Any, partial(NamespacedBroker, network))
        super().__init__(server, session_timeout_ms)

    def address(self, node_id: int) -> str:
        return f"{self._namespaces.host(node_id)}:{PORT}"

    def _start(self, node_id: int) -> None:
        self.brokers[node_id].start()

    def _is_formed(self) -> bool:
        present = {node for node in self._running() if node not in self._unreachable}
        return all(present <= self._known_brokers(node) for node in present)

    def _known_brokers(self, node_id: int) -> set[int]:
        try:
            with RawClient(PORT, 5.0, host=self._namespaces.host(node_id)) as client:
                found = client.metadata()
        except (OSError, ClosedByBrokerError):
            return set()
        return set() if found.controller_id < 0 else {broker.node_id for broker in found.brokers}

    def cut_off(self, node_id: int, *, silently: bool = False) -> None:
        self._unreachable.add(node_id)
        self._namespaces.cut(node_id)

    def _connect(self, node_id: int) -> None:
        self._namespaces.heal(node_id)
        for other in self.brokers.keys() - {node_id}:
            self._namespaces.unblock(node_id, other)

    def cut_link(self, source: int, target: int, *, silently: bool = False) -> None:
        self._namespaces.block(source, target)

    def heal_link(self, source: int, target: int) -> None:
        self._namespaces.unblock(source, target)

    def delay(self, node_id: int) -> None:
        self._namespaces.delay(node_id)

    def undelay(self, node_id: int) -> None:
        self._namespaces.undelay(node_id)
