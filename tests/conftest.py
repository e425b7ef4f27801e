"""What all tests share."""

from __future__ import annotations

import importlib.util
import os
import signal
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# A busy machine is no reason to fail: hypothesis looks for wrong results here, not for slow ones.
settings.register_profile("skylog", deadline=None, print_blob=True)
settings.load_profile("skylog")

# Every JVM of a test lives for a minute: what its second compiler would win it never gets back.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Who is started in the background may have to ignore Ctrl-C, and so would what it starts: programs under test, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HAS_SPARK = importlib.util.find_spec("pyspark") is not None
collect_ignore = [] if HAS_SPARK else ["spark"]


def pytest_report_header() -> str:
    return "Spark: " + ("tested" if HAS_SPARK else "not installed, tests/spark is left out; pip install -e '.[spark]'")


class WholeFiles(LoadScopeScheduling):
    """Lets a worker have whole files, whose tests share brokers; and one of them all that shares the Spark session."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        has_own_driver = "/peers/" in path or "/kills/" in path or "/test_kill" in path
        return "tests/spark" if path.startswith("tests/spark/") and not has_own_driver else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles:
    return WholeFiles(config, log)
