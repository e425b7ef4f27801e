"""A broker and a registry, in two processes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from skylog.testing import BrokerProcess
from tests.registry.registry_process import Api, RegistryProcess, running_registry, wait_for_writer


@pytest.fixture(scope="package")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(settings={"log.retention.ms": "-1"}) as broker:
        yield broker


@pytest.fixture(scope="package")
def registry(broker: BrokerProcess) -> Iterator[RegistryProcess]:
    with running_registry(broker.bootstrap) as registry:
        yield registry


@pytest.fixture(scope="package")
def api(registry: RegistryProcess) -> Api:
    api = Api(registry.url)
    wait_for_writer(api)
    return api


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return f"s-{uuid.uuid4().hex[:12]}"
