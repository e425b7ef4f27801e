"""How tests are shared among workers: a worker that dies fails one test, and the run goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler\n"
FATAL = "import os\ndef test_before(): pass\ndef test_fatal(): os._exit(1)\ndef test_after(): pass\n"
HARMLESS = "def test_one(): pass\ndef test_two(): pass\n"


def test_the_last_worker_may_die_when_the_others_have_ended(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    slow = "import os, time\ndef test_fatal(): time.sleep(2); os._exit(1)\ndef test_after(): pass\n"
    (tmp_path / "test_fatal.py").write_text(slow)
    (tmp_path / "test_harmless.py").write_text(HARMLESS)
    (tmp_path / "test_later.py").write_text("def test_one(): pass\n")
    assert "1 failed, 4 passed" in run_in(tmp_path)


def test_a_test_that_ends_its_worker_fails_once_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_fatal.py").write_text(FATAL)
    (tmp_path / "test_last.py").write_text("import os\ndef test_fatal(): os._exit(1)\n")
    for number in range(6):
        (tmp_path / f"test_harmless_{number}.py").write_text(HARMLESS)

    assert "2 failed, 14 passed" in run_in(tmp_path)


def run_in(path: Path) -> str:
    """Run the tests of a directory with two workers. Return the output."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-c", "/dev/null", path]
    run = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 1
    return run.stdout + run.stderr
