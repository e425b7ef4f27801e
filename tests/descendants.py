"""Finds the processes that a command has started.

All of them inherit a variable of its environment. Those that have not lost their parents can be found by those, too.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from skylog.testing import wait_until

MARK = "SKYLOG_TEST_RUN"


def new_mark() -> dict[str, str]:
    """The variable for the environment of a command, with a new value."""
    return {MARK: uuid.uuid4().hex}


def descendants(mark: str) -> dict[int, str]:
    """The command lines of the running processes with this value of the variable, by process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has just exited, or belongs to another user
    return found


def wait_for_the_last(mark: str, seconds: float = 60) -> None:
    """Fail if any of them does not end."""
    try:
        wait_until(lambda: not descendants(mark), "the end of all processes", seconds)
    except AssertionError:
        pytest.fail(f"these have not ended: {descendants(mark)}")


def below(*pids: int) -> dict[int, str]:
    """The command lines of all processes that these have started, directly or not, by process id."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            commands[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has just exited
        parents[int(path.name)] = int(fields[1])
    found = list(pids)
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return {each: commands[each] for each in found[len(pids) :]}
