"""The pytest plugin: fixtures for a broker, its address, an admin, a topic, and a cluster. Only pytest loads it.

pytest loads it in every run of a project with skylog installed, so each fixture imports what it needs.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from skylog.client import Admin
    from skylog.testing.broker import BrokerProcess
    from skylog.testing.cluster import BrokerCluster

_UNFIT_FOR_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_PREFIX: Final = 80


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "skylog_settings",
        "Settings of the brokers of skylog_broker and skylog_cluster, one KEY=VALUE per line.",
        type="linelist",
    )


@pytest.fixture(scope="session")
def skylog_settings(pytestconfig: pytest.Config) -> dict[str, str]:
    """The broker's settings, from the ini option of the same name. Override this in a conftest.py to compute them."""
    settings = {}
    for line in pytestconfig.getini("skylog_settings"):
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"skylog_settings: expected KEY=VALUE, got '{line}'")
        settings[key.strip()] = value.strip()
    return settings


@pytest.fixture(scope="session")
def skylog_broker(skylog_settings: dict[str, str]) -> Iterator[BrokerProcess]:
    """A broker on a free port, for the whole run; with pytest-xdist, one for each worker."""
    from skylog.testing.broker import BrokerProcess

    with BrokerProcess(settings=skylog_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def skylog_bootstrap(skylog_broker: BrokerProcess) -> str:
    """The broker's address, for a client's `bootstrap.servers`."""
    return skylog_broker.bootstrap


@pytest.fixture(scope="session")
def skylog_admin(skylog_bootstrap: str) -> Admin:
    """An `Admin` for that broker."""
    from skylog.client import Admin, Connection

    return Admin(Connection(skylog_bootstrap))


@pytest.fixture
def skylog_topic(request: pytest.FixtureRequest, skylog_admin: Admin) -> Iterator[str]:
    """The name of a new topic, named after the test. It has `num.partitions` partitions and is deleted afterwards."""
    from skylog.client import TopicNotFoundError

    prefix = _UNFIT_FOR_TOPICS.sub("-", request.node.name)[:_LONGEST_PREFIX].strip("-")
    topic = f"{prefix}-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(topic)
    yield topic
    with contextlib.suppress(TopicNotFoundError):  # the test may have deleted it
        skylog_admin.delete_topics([topic])


@pytest.fixture(scope="session")
def skylog_cluster(skylog_settings: dict[str, str]) -> Iterator[BrokerCluster]:
    """A cluster of three brokers, for the whole run; with pytest-xdist, one for each worker."""
    from skylog.testing.cluster import BrokerCluster

    with BrokerCluster(settings=skylog_settings) as cluster:
        yield cluster
