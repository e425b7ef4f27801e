"""Directories that a development cluster does not use. `tests/cli/test_cluster_up.py` runs whole clusters."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from skylog.development import ClusterPlan, DevelopmentCluster
from skylog.development import cluster as cluster_module
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
