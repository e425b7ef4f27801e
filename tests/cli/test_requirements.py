"""What commands require of the machine: packages, Java, directories."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skylog.cli.requirements import check_requirements
from skylog.java import RequirementError

from ..conftest import HAS_SPARK
from .commands import run_skylog

needs_spark = pytest.mark.skipif(not HAS_SPARK, reason="pip install -e '.[spark]'")


@needs_spark
def test_without_java_the_error_explains_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementError, match="requires Java 17 or later, but none was found: install one"):
        check_requirements()


@needs_spark
def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RequirementError, match=r'17 or later; .*bin/java reports: openjdk version "11\.0\.2"'):
        check_requirements()


@pytest.mark.parametrize("command", [["secure"], ["pipeline", "new"], ["zookeeper", "--data-dir"]], ids=" ".join)
def test_a_directory_that_cannot_be_made_is_one_line(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_skylog(*command, tmp_path / "file" / "below")
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*/file/below(: | cannot be a data directory: )Not a directory.*\n", done.stderr)
