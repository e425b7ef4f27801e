"""Makes the archive of Spark's classes, unless there is one: `python -m tests.spark.class_archive`.

Runs `smoke.py` with a JVM that stores the classes that it has loaded when it ends. A JVM that loads them from there
starts in half the time. The tests start dozens.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from skylog.testing import BrokerProcess, produce
from tests import jvm

LIMIT_S = 120


def make() -> None:
    archive = jvm.class_archive()
    if archive.exists():
        return
    new = archive.with_suffix(".new")
    with BrokerProcess() as broker, tempfile.TemporaryDirectory() as directory:
        produce(broker.bootstrap, "smoke", ["a", "b"])
        submit = f"-XX:ArchiveClassesAtExit={new} -Xlog:disable"
        subprocess.run(
            [sys.executable, Path(__file__).with_name("smoke.py"), broker.bootstrap, "smoke", directory],
            env={**os.environ, "JDK_JAVA_OPTIONS": jvm.OPTIONS, "SPARK_SUBMIT_OPTS": submit},
            check=True,
            timeout=LIMIT_S,
            stdout=subprocess.PIPE,  # the JVM has it, too, and stores the classes after the script has ended
        )
    shutil.move(new, archive)


if __name__ == "__main__":
    make()
