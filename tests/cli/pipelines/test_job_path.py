"""`skylog pipeline run MODULE:NAME`: the job is found, or the message says what is wrong."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark", reason="jobs run on Spark: pip install -e '.[spark]'")

from skylog.cli.main import command_line
from skylog.cli.pipelines.job_path import load_job
from skylog.errors import ConfigError

MODULE = """
from skylog.pipeline import Topic, job

@job(reads="comments", into=Topic("flagged"))
def spam(events):
    return events

def plain(events):
    return events
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the working directory."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_job_is_found_by_its_path(module: str) -> None:
    assert repr(load_job(f"{module}:spam")) == "<job spam: comments -> flagged>"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("MODULE", "expected MODULE:NAME, such as shop.jobs:spam"),
        ("MODULE:", "expected MODULE:NAME"),
        ("a b:spam", "expected MODULE:NAME"),
        ("nowhere_to_be_found.jobs:spam", "there is no module 'nowhere_to_be_found' in"),
        ("MODULE:ham", "has no job 'ham'; it has spam"),
        ("MODULE:plain", "'plain' in MODULE is not a job: decorate it with @job"),
    ],
)
def test_a_wrong_path_is_explained(module: str, path: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_job(path.replace("MODULE", module))
    assert problem.replace("in MODULE", f"in {module}") in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_such_package", "imports 'no_such_package', which is not installed: pip install no_such_package"),
        ("1 / 0", r"ZeroDivisionError: division by zero \(.*broken_.*\.py, line 1\)"),
        (
            "from skylog.pipeline import Table, job\njob((), Table('x'))(lambda e: e)",
            "ConfigError: job .* reads no topic",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_explained(module: str, text: str, problem: str) -> None:
    name = f"broken_{uuid.uuid4().hex[:8]}"
    Path(f"{name}.py").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_job(f"{name}:spam")


def test_the_command_takes_a_path_in_the_place_of_a_name(module: str) -> None:
    result = CliRunner().invoke(command_line(), ["pipeline", "run", f"{module}:ham", "--once"])
    assert result.exit_code == 1
    assert isinstance(result.exception, ConfigError)
    assert CliRunner().invoke(command_line(), ["pipeline", "run", "nothing"]).exit_code == 2
