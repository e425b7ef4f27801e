"""The arguments of `skylog serve` that are read without typer mean what they mean to typer."""

from __future__ import annotations

import inspect
import subprocess
import sys
from unittest import mock

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from skylog.cli.main import command_line
from skylog.cli.serve import command
from skylog.cli.serve.options import ServeOptions
from skylog.cli.serve.plain_arguments import FLAGS, REPEATED, VALUES, VARIABLES, read_plain_arguments

TEXTS = (
    "a",
    "data/x y",
    "0",
    "9092",
    "65535",
    "65536",
    "00080",
    "-1",
    "",
    "é",
    "k=v",
    "text",
    "json",
    "JSON",
    "--port",
)

arguments = st.lists(
    st.one_of(
        st.sampled_from(sorted(FLAGS)).map(lambda name: [name]),
        st.tuples(st.sampled_from([*VALUES, REPEATED]), st.sampled_from(TEXTS)).map(list),
        st.tuples(st.sampled_from([*VALUES, REPEATED]), st.sampled_from(TEXTS)).map(lambda each: ["=".join(each)]),
    ),
    max_size=4,
).map(lambda groups: [text for group in groups for text in group])


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    return command_line(["serve"])


def read_by_typer(app: typer.Typer, given_arguments: list[str], environment: dict[str, str]) -> ServeOptions | None:
    """The options that typer calls the broker with; None if it refuses them."""
    found: list[ServeOptions] = []
    with mock.patch.object(command, "run_broker", found.append):
        CliRunner().invoke(app, ["serve", *given_arguments], env=dict.fromkeys(VARIABLES) | environment)
    return found[0] if found else None


@settings(max_examples=150, deadline=None)
@given(
    given_arguments=arguments,
    environment=st.dictionaries(st.sampled_from(sorted(VARIABLES)), st.sampled_from(TEXTS), max_size=2),
)
def test_what_is_read_without_typer_is_what_typer_reads(
    app: typer.Typer, given_arguments: list[str], environment: dict[str, str]
) -> None:
    plain = read_plain_arguments(given_arguments, environment)
    if plain is not None:
        assert plain == read_by_typer(app, given_arguments, environment)


def test_the_usual_arguments_are_plain(app: typer.Typer) -> None:
    given_arguments = [
        "--data-dir",
        "d",
        "--port=0",
        "--no-console",
        "--set",
        "a=b",
        "--set",
        "c=d",
        "--log-format",
        "json",
    ]
    plain = read_plain_arguments(given_arguments, {"SKYLOG_CONSOLE_TOKEN": "t"})
    assert plain is not None
    assert (plain.settings, plain.console, plain.console_token) == (("a=b", "c=d"), False, "t")
    assert plain == read_by_typer(app, given_arguments, {"SKYLOG_CONSOLE_TOKEN": "t"})


@pytest.mark.parametrize("given_arguments", [["--help"], ["x"], ["--port"], ["--port", "65536"], ["--por", "1"]])
def test_help_and_mistakes_are_left_to_typer(given_arguments: list[str]) -> None:
    assert read_plain_arguments(given_arguments, {}) is None


def test_every_option_is_known() -> None:
    fields = {field for field, _ in VALUES.values()} | {field for field, _ in FLAGS.values()} | {"settings"}
    assert fields == set(inspect.signature(command.serve).parameters)


def test_a_broker_starts_without_typer_and_what_it_imports() -> None:
    script = (
        "import sys; from skylog.cli import main; sys.argv = ['skylog', 'serve', '--set', 'no.such.key=1']\n"
        "try: main.run()\n"
        "except SystemExit: print(*(name for name in ('skylog.broker', 'typer', 'pydantic') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "skylog.broker\n", done.stderr
