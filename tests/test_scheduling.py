"""How tests are shared among workers: a worker that dies fails one test, and the run goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler\n"
FATAL = "import os\ndef test_before(): pass\ndef test_fatal(): os._exit(1)\ndef test_after(): pass\n"
HARMLESS = "def test_one(): pass\ndef test_two(): pass\n"


def test_a_test_that_ends_its_worker_fails_once_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_fatal.py").write_text(FATAL)
    (tmp_path / "test_last.py").write_text("import os\ndef test_fatal(): os._exit(1)\n")
    for number in range(6):
        (tmp_path / f"test_harmless_{number}.py").write_text(HARMLESS)

    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-c", "/dev/null", tmp_path]
    run = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert "2 failed, 14 passed" in run.stdout, run.stdout + run.stderr
    assert run.returncode == 1
