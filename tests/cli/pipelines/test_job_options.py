"""The options that all job commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("pyspark", reason="jobs run on Spark: pip install -e '.[spark]'")

from skylog.cli.main import command_line
from skylog.cli.pipelines import run
from skylog.cli.pipelines.job_options import StreamOptions, with_options

COMMANDS = sorted(command.name or "" for command in run.registered_commands)


def test_a_command_gets_its_own_parameters_and_the_options_of_all_jobs() -> None:
    seen: list[tuple[str, int, StreamOptions]] = []

    @with_options
    def copy(topic: str, size: Annotated[int, typer.Option("--size")] = 7, *, options: StreamOptions) -> None:
        """Copy."""
        seen.append((topic, size, options))

    commands = typer.Typer()
    commands.command()(copy)
    given = ["events", "--every", "30s", "--conf", "a=b", "--max-offsets", "9", "--state", "here", "--bootstrap", "x:1"]
    assert CliRunner().invoke(commands, given).exit_code == 0
    [(topic, size, options)] = seen
    assert (topic, size, options.group, options.max_offsets, options.state) == ("events", 7, None, 9, Path("here"))
    assert (options.every_s, options.spark_settings) == (30.0, {"a": "b"})
    assert options.cluster().bootstrap == "x:1"
    assert copy.__doc__ == "Copy."


@pytest.mark.parametrize("command", COMMANDS)
def test_every_job_takes_them_and_explains_them(command: str) -> None:
    result = CliRunner().invoke(command_line(), ["pipeline", "run", command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for option in ("--once", "--every", "--bootstrap", "--master", "--conf", "--option", "--json"):
        assert option in result.output
    assert f"skylog pipeline run {command}" in result.output


def test_once_and_every_exclude_each_other() -> None:
    with pytest.raises(typer.BadParameter, match="exclude each other"):
        _ = StreamOptions(once=True, every="1m").every_s
    assert StreamOptions(once=True).every_s is None
    assert StreamOptions().every_s == 0.0
