"""Finds a Java runtime, for the commands that run one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from skylog.errors import SkylogError

_OLDEST_JAVA: Final = 17
_TIMEOUT_S: Final = 30.0
_HOW: Final = "install one (on Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME to its directory"


class RequirementError(SkylogError):
    """A required package or program is missing or too old."""


def find_java(purpose: str) -> str:
    """Return the path of `java`. Raises RequirementError if there is none; `purpose` is what requires it."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")  # the order in which Spark searches
    if java is None:
        raise RequirementError(f"{purpose} requires Java {_OLDEST_JAVA} or later, but none was found: {_HOW}")
    return java


def check_java(purpose: str) -> None:
    """Raise RequirementError unless Java can be run and is recent enough."""
    java = find_java(purpose)
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequirementError(f"{purpose} requires Java, but {java} cannot be run ({error}): {_HOW}") from error
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        found = output.partition("\n")[0] or "nothing"
        raise RequirementError(f"{purpose} requires Java {_OLDEST_JAVA} or later; {java} reports: {found}; {_HOW}")
