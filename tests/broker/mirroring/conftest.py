"""Two clusters of one broker, shared by the tests of a module; each test has topics and mirrors of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..process import BrokerProcess


@pytest.fixture(scope="module")
def west() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process
        assert not process.tracebacks()


@pytest.fixture(scope="module")
def east() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process
        assert not process.tracebacks()
