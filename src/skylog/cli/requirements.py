"""What the pipeline needs of the machine, asked for before anything is started."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from skylog.errors import SkylogError

_OLDEST_JAVA: Final = 17
_PATIENCE_S: Final = 30.0
_HOW: Final = "install one (on Debian: apt install openjdk-17-jre-headless), or let JAVA_HOME name its directory"


class RequirementError(SkylogError):
    """Something has to be installed first."""


def check_requirements(*, needs_java: bool = True) -> None:
    """Raises RequirementError, which says what to install."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        raise RequirementError(f"the pipeline wants Spark, and {missing[0]} is missing: pip install 'skylog[spark]'")
    if needs_java:
        _check_java()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")  # as Spark looks for it
    if java is None:
        raise RequirementError(f"Spark wants Java {_OLDEST_JAVA} or later, and there is none: {_HOW}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_PATIENCE_S).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequirementError(f"Spark wants Java, and {java} cannot be run ({error}): {_HOW}") from error
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        found = said.partition("\n")[0] or "nothing"
        raise RequirementError(f"Spark wants Java {_OLDEST_JAVA} or later; {java} says: {found}; {_HOW}")
