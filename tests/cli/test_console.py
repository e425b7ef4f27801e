"""`skylog console` before it serves: which connection settings it accepts, and its errors for others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from skylog.cli.options import read_settings
from skylog.client.connection import _SHARED_SETTINGS
from skylog.console.settings import OPTION_PREFIXES
from skylog.errors import ConfigError


def refused(*options: str) -> str:
    command = [sys.executable, "-m", "skylog", "console", "--port", "0", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    return ended.stderr


def test_a_setting_unknown_to_librdkafka_is_an_error_at_startup() -> None:
    assert 'No such configuration property: "sasl.nonsense"' in refused("--option", "sasl.nonsense=1")


def test_a_setting_unrelated_to_the_connection_is_rejected() -> None:
    assert "--option linger.ms: only librdkafka settings" in refused("--option", "linger.ms=5").replace("\n", " ")


def test_options_on_the_command_line_take_precedence_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# how to reach the cluster\nsecurity.protocol=SASL_SSL\nsasl.password=a=b\n")
    found = read_settings(path, ["security.protocol = SASL_PLAINTEXT"], "--option")
    assert found == {"security.protocol": "SASL_PLAINTEXT", "sasl.password": "a=b"}


def test_an_invalid_option_is_rejected_without_repeating_it() -> None:
    with pytest.raises(ConfigError, match="expected KEY=VALUE") as caught:
        read_settings(None, ["secret"], "--option")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read --config"):
        read_settings(tmp_path / "missing", [], "--option")


def test_the_options_that_are_taken_are_those_that_reach_every_client() -> None:
    """Written twice, because the settings must not load the clients' library."""
    assert OPTION_PREFIXES == _SHARED_SETTINGS
