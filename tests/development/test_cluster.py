"""Directories that a development cluster does not use. `tests/cli/test_cluster_up.py` runs whole clusters."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from skylog.development import ClusterPlan, DevelopmentCluster
from skylog.development import cluster as cluster_module
from skylog.development.cluster_broker import ClusterBroker
from skylog.errors import SkylogError


def refused(data_dir: Path) -> str:
    with pytest.raises(SkylogError) as caught, DevelopmentCluster(data_dir, ClusterPlan(port=0)):
        pass
    return str(caught.value)


def test_the_directory_of_a_single_broker_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    assert refused(tmp_path) == f"{tmp_path} is the data directory of a single broker; choose another --data-dir"


def test_the_directory_of_a_running_cluster_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_LOCK_PATIENCE_S", 0.1)
    with open(tmp_path / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert refused(tmp_path) == (
            f"{tmp_path} is in use by another cluster; stop that one or choose another --data-dir"
        )


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file" / "data") == f"cannot use --data-dir {tmp_path}/file/data: Not a directory"


class LateBroker(ClusterBroker):
    """A broker whose process is launched a moment after Ctrl-C, and then waits for ZooKeeper until it is stopped."""

    launched = threading.Event()
    stopped = threading.Event()

    def start(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        self.launched.set()
        assert self.stopped.wait(20)

    def stop(self) -> None:
        if self.launched.is_set():
            self.stopped.set()


class NoZooKeeper:
    address = "127.0.0.1:1"
    port = 1

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def start(self) -> None:
        pass

    def wait(self) -> None:
        threading.Event().wait()

    def stop(self) -> None:
        pass


def test_a_broker_that_is_launched_after_ctrl_c_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ClusterBroker", LateBroker)
    monkeypatch.setattr(cluster_module, "ZooKeeperServer", NoZooKeeper)
    monkeypatch.setattr(DevelopmentCluster, "_supervise", lambda *_: None)
    plan = ClusterPlan(brokers=1, port=0, has_console=False)
    with pytest.raises(KeyboardInterrupt), DevelopmentCluster(tmp_path, plan):
        pass
    assert LateBroker.stopped.is_set()
