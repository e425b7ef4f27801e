"""`skylog pipeline run visits`: mistakes that are reported before Spark starts."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from skylog.cli.main import command_line

app = command_line()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--organisation", "attributes..id"], "expected a form such as attributes.org_id"),
        (["--option", "failOnDataLoss"], "expected KEY=VALUE"),
        (["--max-offsets", "0"], "--max-offsets"),
        (["--once", "--every", "1h"], "exclude each other"),
    ],
)
def test_mistakes_are_reported_at_once(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, ["pipeline", "run", "visits", "page_views", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert problem in result.output
