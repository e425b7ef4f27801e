"""Brokers that lose power: what they had not written to disk is gone, and they do not know."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from skylog.testing import BrokerCluster, BrokerProcess
from skylog.testing.command import Command, connect_command

from .journaled_skylog import read_journal
from .nemesis import SESSION_MS, SETTINGS

LAUNCHER: Final = Path(__file__).with_name("journaled_skylog.py")
SYNC_MS: Final = 20


class MachineProcess(BrokerProcess):
    """A broker on a machine of its own, which can lose power or its disk."""

    def lose_power(self) -> int:
        """Kill the broker and cut its segments to what is on disk. Return the number of bytes that are gone."""
        self.kill()
        synced = read_journal(self._journal)
        return sum(cut(path, synced.get(path, 0)) for path in self.data_dir.glob("*/*.log"))

    def lose_disk(self) -> None:
        """Kill the broker and delete all of its data."""
        self.kill()
        shutil.rmtree(self.data_dir)
        self._journal.unlink()

    @property
    def _journal(self) -> Path:
        return self.data_dir.with_name("journal")

    def _launch(self, arguments: list[str], stderr: int) -> Command:
        command = [sys.executable, "-P", str(LAUNCHER), str(self._journal), str(SYNC_MS), *arguments]
        return connect_command(
            lambda stdin, stdout: subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
            )
        )


def cut(path: Path, size_bytes: int) -> int:
    """Cut a file to a size. Return the number of bytes cut off."""
    gone = max(path.stat().st_size - size_bytes, 0)
    if gone:
        os.truncate(path, size_bytes)
    return gone


class MachineCluster(BrokerCluster):
    """A cluster of such brokers."""

    process_type = MachineProcess

    def machine(self, node_id: int) -> MachineProcess:
        broker = self.brokers[node_id]
        assert isinstance(broker, MachineProcess)
        return broker


def new_machines(**settings: str) -> MachineCluster:
    """Three machines. Names of settings have underscores in place of dots."""
    more = {key.replace("_", "."): value for key, value in settings.items()}
    return MachineCluster(settings=SETTINGS | more, session_timeout_ms=SESSION_MS)
