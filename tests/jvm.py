"""How the tests start JVMs: the options for all of them, in `JDK_JAVA_OPTIONS`.

Every JVM of a test lives for a few minutes: what its second compiler would win it never gets back. Most of that time it
loads classes, which are the same as ever and need no verification. Spark's come from an archive, if there is one
(`make spark-classes`). JVMs with other classes ignore it.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


def class_archive() -> Path:
    """The archive of the classes of the installed Spark. It may not exist."""
    try:
        return Path(sys.prefix) / f"spark-{version('pyspark')}.jsa"
    except PackageNotFoundError:
        return Path(sys.prefix) / "no-spark.jsa"


def options() -> str:
    archive = class_archive()
    if not archive.exists():
        return OPTIONS
    return f"{OPTIONS} -XX:SharedArchiveFile={archive} -Xlog:disable"  # a warning would be part of a program's output
