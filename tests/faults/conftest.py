"""A broker that is abused, with a neighbour who must notice nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..broker.process import BrokerProcess
from ..broker.raw import RawClient
from .neighbour import Neighbour

MAX_RSS_BYTES = 400 * 1024 * 1024


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """It must live through the whole module, in bounded memory and without a traceback.

    A module may have settings of its own: `BROKER_SETTINGS`.
    """
    settings = getattr(request.module, "BROKER_SETTINGS", {})
    process = BrokerProcess(tmp_path_factory.mktemp("faults") / "data", settings)
    with process:
        yield process
        assert process.is_running
        assert process.rss_bytes < MAX_RSS_BYTES


@pytest.fixture(scope="module")
def neighbour(broker: BrokerProcess) -> Iterator[Neighbour]:
    """Somebody who works in peace on the broker that is abused."""
    with Neighbour(broker.bootstrap) as working:
        yield working


@pytest.fixture
def undisturbed(broker: BrokerProcess, neighbour: Neighbour) -> Iterator[None]:
    """After the test the broker lives, has not stumbled, and the neighbour is content."""
    said = len(broker.stderr())
    yield
    assert broker.is_running
    neighbour.check()
    assert not broker.tracebacks(said)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as connection:
        yield connection
