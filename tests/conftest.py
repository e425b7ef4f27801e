"""What all tests share."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests import jvm
from tests.heavy import is_heavy, rank

# A busy machine is no reason to fail: hypothesis looks for wrong results here, not for slow ones.
settings.register_profile("skylog", deadline=None, print_blob=True)
settings.load_profile("skylog")

os.environ.setdefault("JDK_JAVA_OPTIONS", jvm.options())

# See there: a third of what Spark's Python workers would take.
os.environ.setdefault("SKYLOG_WORKER_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_PYTHON", str(Path(__file__).with_name("spark") / "worker_python"))

# Who is started in the background may have to ignore Ctrl-C, or the end of the terminal if it was started by `nohup`.
# So would what it starts: programs under test, too.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

HAS_SPARK = importlib.util.find_spec("pyspark") is not None
collect_ignore = [] if HAS_SPARK else ["spark", "pipeline"]


def pytest_report_header() -> str:
    return "Spark: " + (
        "tested"
        if HAS_SPARK
        else "not installed, tests/spark and tests/pipeline are left out; pip install -e '.[spark]'"
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what is slow by nature, see tests/heavy.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    path = collection_path.relative_to(config.rootpath).as_posix() if collection_path != config.rootpath else ""
    is_left_out = config.getoption("--quick") and is_heavy(path + "/" if collection_path.is_dir() else path)
    return True if is_left_out else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, None, None]:
    """Workers import all files. In a fresh checkout, each compiles its share first and finds the others' in the cache.

    What exists afterwards lives as long as the worker, so the garbage collector need not visit it again.
    """
    config = session.config
    gc.disable()
    if hasattr(config, "workerinput") and config.args == config.getini("testpaths"):
        number, count = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
        paths = sorted(path.relative_to(config.rootpath) for path in Path(__file__).parent.rglob("test_*.py"))
        wanted = [path for path in paths if not (config.getoption("--quick") and is_heavy(path.as_posix()))]
        for path in wanted[number::count]:
            with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting the file will report it
                importlib.import_module(".".join(path.with_suffix("").parts))
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several workers share the tests, what takes longest comes first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.nodeid))


# Files elsewhere that use the session of the jobs' tests.
SHARING_SPARK = ("tests/examples/test_two_stages.py", "tests/cli/pipelines/test_new.py")


class WholeFiles(LoadScopeScheduling):
    """Lets a worker have whole files, whose tests share brokers; some files share a browser, or Spark."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path in SHARING_SPARK:
            return "Spark: jobs"
        if path.startswith("tests/console/browser/"):
            return "browser"
        if not path.startswith(("tests/spark/", "tests/pipeline/")):
            return path
        if "::test_the_command_" in nodeid:
            return "Spark: commands, which share a JVM of their own"
        if path.startswith("tests/pipeline/standalone/"):
            return "Spark: cluster, with JVMs of its own"
        if path.startswith("tests/pipeline/"):
            return "Spark: jobs"
        return "Spark: source and sink"

    def remove_node(self, node: Any) -> str | None:
        """Fails the test that ended its worker, and hands the rest of its files to the others.

        xdist would give that test to the next worker, which it ends as well; and a file without tests left to run
        would keep a worker waiting for ever.
        """
        files = self.assigned_work[node]
        culprit = next(((file, test) for file in files.values() for test, is_done in file.items() if not is_done), None)
        if culprit is None:
            super().remove_node(node)
            return None
        file, test = culprit
        file[test] = True
        for scope in [scope for scope, tests in files.items() if all(tests.values())]:
            del files[scope]
        super().remove_node(node)
        return str(test)

    def _reschedule(self, node: Any) -> None:
        """Give a worker more to do, unless it is still collecting, in place of one that died.

        A worker begins a test when it has the next one, or has to shut down. xdist sees to that only at the start.
        """
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles:
    config.option.loadscopereorder = False  # in the order of collection, not by the number of tests
    return WholeFiles(config, log)
