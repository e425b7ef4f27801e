"""Spark Connect: the same source and sink from a client without Spark's classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from skylog.testing import BrokerProcess, produce
from tests.proof import in_proof

MISSING = [name for name in ("grpc", "grpc_status", "pandas", "zstandard") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"Spark Connect wants {', '.join(MISSING)}")


@in_proof  # the short form: tests/examples/test_declarative_pipeline.py, whose pipeline runs on Spark Connect
@pytest.mark.timeout(600)
def test_a_client_reads_writes_and_streams(skylog_broker: BrokerProcess, skylog_topic: str, tmp_path: Path) -> None:
    produce(skylog_broker.bootstrap, skylog_topic, [b"a", b"b"])
    command = [sys.executable, "-m", "tests.spark.connect_client", skylog_broker.bootstrap, skylog_topic, str(tmp_path)]
    variables = {key: value for key, value in os.environ.items() if key != "SPARK_REMOTE"}
    variables["SPARK_TESTING"] = "1"  # any port: another server may have Spark's default one
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=variables)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["columns"] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert found["read"] == ["a", "b"]
    assert found["copied"] == ["a", "b", "written"]
