"""A broker of a development cluster: `skylog serve` as a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from skylog.development.command_process import CommandProcess
from skylog.development.ports import HOST
from skylog.errors import SkylogError


class ClusterBroker(CommandProcess):
    """A broker on 127.0.0.1. Port 0 picks a free port, which is then kept. `home` is the cluster's directory."""

    def __init__(self, node_id: int, port: int, home: Path, lock: int) -> None:
        """`lock` is the descriptor of a lock that lasts as long as the process."""
        super().__init__(home / f"broker-{node_id}.log", [lock])
        self.node_id = node_id
        self.port = port
        self._data_dir = home / f"broker-{node_id}"
        self._options: list[str] = []

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def configure(
        self, zookeeper: str, settings: Mapping[str, str], log_level: str, config_file: Path | None = None
    ) -> None:
        """Set its options from the next start on. `config_file` has further settings, also secrets."""
        self._options = ["--zookeeper", zookeeper, "--no-console", "--log-level", log_level]
        if config_file is not None:
            self._options += ["--config", str(config_file)]
        for key, value in {**settings, "node.id": str(self.node_id)}.items():
            self._options += ["--set", f"{key}={value}"]

    def start(self) -> None:
        """Start or restart it. Returns when clients can connect. Raises SkylogError with the broker's error."""
        self._launch(["serve", "--data-dir", str(self._data_dir), "--port", str(self.port), *self._options])
        try:
            address = self._wait_for_address()
        except SkylogError as error:
            raise SkylogError(f"{error} (see {self.log_path})") from error
        self.port = int(address.rpartition(":")[2])
