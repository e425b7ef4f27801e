"""Jars of the peers that Spark and brokers are compared with, fetched once with the ordinary `mvn` into a cache."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CACHE: Final = Path.home() / ".cache" / "skylog-tests"
FETCH_S: Final = 180

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>skylog</groupId><artifactId>peers</artifactId><version>1</version><dependencies>{}</dependencies></project>"""
_DEPENDENCY: Final = (
    """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"""
)
_ALONE: Final = """<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""

# The connector, and the token provider that it needs: the newest available pair. Spark itself has the rest.
_CONNECTORS: Final = (("4.3.0", "4.3.0"), ("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))
_KAFKA_VERSION: Final = "3.9.1"
_DELTA_VERSION: Final = "4.4.0"
DELTA_FOR: Final = ("4.1", "4.2")
"""The versions of Spark for which delta-spark has a jar."""


class NoJarsError(Exception):
    """A peer that cannot be had here, and why."""


def connector_jars() -> list[Path]:
    """Spark's JVM connector for Kafka. Raises NoJarsError."""
    for connector, provider in _CONNECTORS:
        try:
            return _jars(
                f"connector-{connector}-{provider}",
                [
                    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}",
                    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{provider}",
                    f"org.apache.kafka:kafka-clients:{_KAFKA_VERSION}",
                    "org.apache.commons:commons-pool2:2.12.0",
                ],
                _ALONE,
            )
        except NoJarsError as error:
            reason = error
    raise reason


def delta_jars() -> list[Path]:
    """Spark's own connector for Delta tables, for the installed PySpark. Raises NoJarsError."""
    import pyspark

    return delta_jars_of(".".join(pyspark.__version__.split(".")[:2]))


def delta_jars_of(spark_version: str) -> list[Path]:
    """The same for another PySpark, such as 4.2. Raises NoJarsError."""
    if spark_version not in DELTA_FOR:
        raise NoJarsError(f"delta-spark {_DELTA_VERSION} is for Spark {' and '.join(DELTA_FOR)}, not {spark_version}")
    return _jars(
        f"delta-{_DELTA_VERSION}-spark-{spark_version}",
        [f"io.delta:{name}:{_DELTA_VERSION}" for name in (f"delta-spark_{spark_version}_2.13", "delta-storage")],
        _ALONE,
    )


def kafka_jars() -> list[Path]:
    """Apache Kafka's broker with all that it needs. Raises NoJarsError."""
    coordinates = [f"org.apache.kafka:kafka_2.13:{_KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36"]
    return _jars(f"kafka-{_KAFKA_VERSION}", coordinates)


def broker_jars() -> list[Path]:
    """The Apache Kafka that a cluster of brokers is compared with. Raises NoJarsError."""
    return _jars("kafka-4.1.0", ["org.apache.kafka:kafka_2.13:4.1.0"])


def mirror_maker_jars() -> list[Path]:
    """MirrorMaker 2 of that Apache Kafka, with the Connect runtime that it needs. Raises NoJarsError."""
    names = ("connect-mirror", "connect-runtime")
    return _jars("mirror-maker-4.1.0", [f"org.apache.kafka:{name}:4.1.0" for name in names])


def _jars(name: str, coordinates: Sequence[str], exclusions: str = "") -> list[Path]:
    directory = CACHE / name
    if not directory.exists():
        if shutil.which("java") is None or shutil.which("mvn") is None:
            raise NoJarsError(f"{name} cannot be had: it needs java and mvn")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work_dir:
            _fetch(
                name, Path(work_dir), "".join(_DEPENDENCY.format(*each.split(":"), exclusions) for each in coordinates)
            )
            if not directory.exists():  # another process may have been faster
                Path(work_dir, "jars").rename(directory)
    return sorted(directory.glob("*.jar"))


def _fetch(name: str, work_dir: Path, dependencies: str) -> None:
    (work_dir / "pom.xml").write_text(_POM.format(dependencies))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={work_dir / 'jars'}"]
    try:
        done = subprocess.run(command, cwd=work_dir, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired as error:
        raise NoJarsError(f"{name} did not come within {FETCH_S} s") from error
    if done.returncode:
        raise NoJarsError(f"{name} cannot be downloaded: {done.stdout[-500:].strip()}")
