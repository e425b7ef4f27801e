"""The versions of PySpark that are supported: older ones are refused, the oldest and the newest are tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skylog.spark.versions import LOWEST_PYSPARK, UnsupportedSparkError, check_pyspark
from skylog.testing import BrokerProcess, produce
from tests.proof import IS_FULL
from tests.spark.peers.installed import Interpreter, NotInstalledError


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.0.dev1", "5.0.0", None])
def test_supported_versions_are_accepted(version: str | None) -> None:
    check_pyspark(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.1.4"])
def test_older_versions_are_refused_with_the_fix(version: str) -> None:
    with pytest.raises(UnsupportedSparkError, match=rf"4\.2 or later, and {version} is installed: pip install"):
        check_pyspark(version)


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`: it installs another PySpark")
@pytest.mark.timeout(1800)
def test_the_lowest_version_reads_writes_and_streams(
    skylog_broker: BrokerProcess, skylog_topic: str, tmp_path: Path
) -> None:
    lowest = "{}.{}".format(*LOWEST_PYSPARK)
    try:
        oldest = Interpreter(lowest)
    except NotInstalledError as error:
        pytest.skip(str(error))
    produce(skylog_broker.bootstrap, skylog_topic, [b"a", b"b"])
    script = Path(__file__).with_name("smoke.py")
    said = oldest.run(script, skylog_broker.bootstrap, skylog_topic, tmp_path, directory=tmp_path)
    found = json.loads(said.splitlines()[-1])
    assert found.pop("pyspark").startswith(f"{lowest}.")
    assert found == {"read": ["a", "b"], "copied": ["a", "b", "written"], "batches": 3, "table": ["a", "b", "written"]}
