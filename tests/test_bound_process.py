"""Programs that end together with the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from skylog.bound_process import BoundProcess
from skylog.testing import wait_until

OWNER = """
import sys, time
from skylog.bound_process import BoundProcess
process = BoundProcess(["sleep", "1000"], directory="/", output=sys.stderr.buffer)
print(process.pid, flush=True)
time.sleep(1000)
"""


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_program_is_killed_with_its_owner() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the program")
        owner.kill()
    wait_until(lambda: not is_alive(pid), "the end of the program")


def test_a_program_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[BoundProcess] = []

    def start() -> None:
        with open(tmp_path / "output", "wb") as output:
            started.append(BoundProcess(["sleep", "1000"], directory=str(tmp_path), output=output))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    (process,) = started
    wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "the program")
    assert not process.wait(0.2)
    assert os.readlink(f"/proc/{process.pid}/cwd") == str(tmp_path)
    process.stop(10)
    assert not process.is_running
    assert not is_alive(process.pid)


def test_the_output_of_a_program_goes_to_the_file(tmp_path: Path) -> None:
    with open(tmp_path / "output", "wb") as output:
        process = BoundProcess(["sh", "-c", "echo out; echo err >&2"], directory="/", output=output)
    assert process.wait(20)
    assert (tmp_path / "output").read_text() == "out\nerr\n"
