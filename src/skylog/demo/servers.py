"""The servers of the demo: a single broker, or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from skylog.demo.access import Access
from skylog.demo.broker import DemoBroker
from skylog.demo.layout import Layout
from skylog.development import ClusterPlan, DevelopmentCluster, secrets_of
from skylog.errors import SkylogError

RETURN_AFTER_S: Final = 8.0
_SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "3000",  # after this time the others notice that a broker was killed
    "offsets.topic.num.partitions": "6",
}


class DemoServers(Protocol):
    """Starts and stops the servers, from one thread."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def console_url(self) -> str: ...
    def start(self) -> None:
        """Return when clients can connect. Raises SkylogError if that fails."""

    def check(self) -> None:
        """Raise SkylogError if they have ended."""

    def close(self) -> None:
        """Stop cleanly. Raises SkylogError if that fails."""

    def kill(self) -> None:
        """Stop at once, as a crash would."""


class DemoCluster:
    """Several brokers, which take over from each other. One that was killed is started again."""

    def __init__(
        self, layout: Layout, brokers: int, port: int, report: Callable[[str], None], secrets: Path | None = None
    ) -> None:
        """`report` is called with a line about what happens to the processes, from any thread.

        `secrets` has the files of a secured cluster.
        """
        plan = ClusterPlan(brokers, port, console_port=0, settings=_SETTINGS, secrets=secrets)
        self._cluster = DevelopmentCluster(layout.cluster, plan, restart_after_s=RETURN_AFTER_S, report=report)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def console_url(self) -> str:
        assert self._cluster.console is not None
        return self._cluster.console.url

    def start(self) -> None:
        self._cluster.start()

    def check(self) -> None:
        """Its processes are supervised: there is nothing to check."""

    def kill_broker(self, node_id: int) -> None:
        """Kill a broker with SIGKILL. It is started again after `RETURN_AFTER_S`."""
        self._cluster.kill(node_id)

    def is_running(self, node_id: int) -> bool:
        return self._cluster.brokers[node_id].is_running

    def close(self) -> None:
        self._cluster.stop()

    def kill(self) -> None:
        self._cluster.abort()


def check_directory(layout: Layout, brokers: int) -> None:
    """Raise SkylogError if the directory belongs to a demo with another kind of servers: its offsets differ."""
    made_by, other = ("one broker", layout.broker) if brokers > 1 else ("several brokers", layout.cluster)
    if other.exists():
        raise SkylogError(f"{layout.root} was made by a demo with {made_by}; choose another --data-dir, or remove it")


def make_access(layout: Layout, brokers: int, *, is_secure: bool) -> Access:
    """Return how the parts of the demo log in."""
    if not is_secure:
        return Access()
    return Access((layout.secrets if brokers == 1 else secrets_of(layout.cluster)).absolute())


def make_servers(
    layout: Layout, brokers: int, port: int, report: Callable[[str], None], access: Access | None = None
) -> DemoBroker | DemoCluster:
    check_directory(layout, brokers)
    access = access or Access()
    if brokers == 1:
        return DemoBroker(layout.broker, port, access.server_file)
    return DemoCluster(layout, brokers, port, report, access.folder)
