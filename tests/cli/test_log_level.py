"""`--log-level`: one level for all loggers, and others for some."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from unittest import mock

import pytest

from skylog.cli.log_format import check_level, start_logging
from skylog.errors import ConfigError

AUDIT = "kafka.authorizer.logger"


@pytest.fixture(autouse=True)
def levels_stay_as_they_are() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger(AUDIT)]
    before = [each.level for each in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def test_a_logger_may_have_a_level_of_its_own() -> None:
    with mock.patch.object(logging.getLogger(), "handlers", []):  # otherwise logging counts as configured
        start_logging(f"error, {AUDIT}=Debug")
    assert logging.getLogger().level == logging.ERROR
    assert logging.getLogger(AUDIT).level == logging.DEBUG


@pytest.mark.parametrize("level", ["loud", f"info,{AUDIT}=loud", "", f"{AUDIT}=debug"])
def test_an_unknown_level_is_an_error(level: str) -> None:
    with pytest.raises(ConfigError, match="expected debug, info, warning or error"):
        check_level(level)


@pytest.mark.parametrize("level", [f"info,{AUDIT}", "info,", f"info,{AUDIT}="])
def test_a_logger_without_a_level_is_an_error(level: str) -> None:
    with pytest.raises(ConfigError, match="expected a level, then LOGGER=LEVEL"):
        check_level(level)
