"""What a ZooKeeper server requires of the machine. tests/cli/test_zookeeper.py starts one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.errors import SkylogError
from skylog.java import RequirementError

from ..conftest import HAS_SPARK


def test_without_pyspark_the_error_explains_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("JAVA_HOME", "/usr")
    with pytest.raises(RequirementError, match=r"pyspark is missing: pip install 'skylog\[spark\]' \(and Java 17\)"):
        ZooKeeperServer(tmp_path).start()


def test_without_java_the_error_explains_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementError, match="ZooKeeper requires Java 17 or later, but none was found: install one"):
        ZooKeeperServer(tmp_path).start()


@pytest.mark.skipif(not HAS_SPARK, reason="pip install -e '.[spark]'")
def test_a_java_that_cannot_be_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    server = ZooKeeperServer(tmp_path / "data")
    with pytest.raises(RequirementError, match=f"{tmp_path}/bin/java cannot be run"):
        server.start()
    assert not server.is_running


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        SkylogError, match="file/zk cannot be a data directory: Not a directory; choose another --data-dir"
    ):
        ZooKeeperServer(tmp_path / "file" / "zk").start()
