"""A capture into a cluster with TLS, logins and access control."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.capture.execute import execute
from tests.cli.commands import run_skylog
from tests.secured_cluster import secured_cluster


def test_a_capture_works_with_the_rights_that_the_docs_name(database: str, tmp_path: Path) -> None:
    execute(database, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    with secured_cluster(tmp_path) as cluster:
        config = cluster.user(
            "capturer",
            ["read", "write", "create", "describe", "--topic", "shop.", "--prefix"],
            ["read", "write", "create", "describe", "delete", "--topic", "_skylog_capture.shop"],
            ["write", "describe", "--transactional-id", "skylog-capture-shop"],
        )

        def capture(*arguments: str) -> str:
            command = [sys.executable, "-m", "skylog.cli.main", "capture", *arguments, "--config", str(config)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stderr
            return done.stderr

        run = (database, "--tables", "public.t", "--prefix", "shop", "--envelope", "plain", "--once")
        capture(*run)
        execute(database, "TRUNCATE t", "INSERT INTO t VALUES (3)")
        capture(*run)
        shown = run_skylog("tail", "shop.public.t", "--no-follow", "--no-meta", "--config", cluster.admin)
        assert shown.stdout.splitlines()[-1].endswith('{"id":3}'), shown
        assert "dropped slot skylog_shop" in capture("drop", database, "--prefix", "shop", "--yes")
