"""Rate limits for log lines that clients can trigger."""

from __future__ import annotations

import logging

import pytest

from skylog import limited_logger
from skylog.limited_logger import LimitedLogger


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list, to be changed."""
    times = [1000.0]
    monkeypatch.setattr(limited_logger, "monotonic", lambda: times[0])
    return times


def test_one_line_of_a_kind_in_ten_seconds_and_the_next_counts_the_rest(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    limited = LimitedLogger(logging.getLogger("test"))
    for number in range(1000):
        limited.warning("refused %d", number)
    limited.warning("something else")
    now[0] += 10
    limited.warning("refused %d", 1000)
    now[0] += 10
    limited.warning("refused %d", 1001)
    assert caplog.messages == [
        "refused 0",
        "something else",
        "refused 1000 (and 999 more like this since the last line)",
        "refused 1001",
    ]


def test_exceptions_of_another_type_are_another_kind(caplog: pytest.LogCaptureFixture, now: list[float]) -> None:
    limited = LimitedLogger(logging.getLogger("test"))
    for error in (ValueError("a"), ValueError("b"), KeyError("c")):
        limited.error("failed", exc_info=error)
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ValueError, KeyError]


def test_a_line_names_the_module_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    LimitedLogger(logging.getLogger("test")).warning("here")
    assert caplog.records[0].filename == "test_limited_logger.py"
