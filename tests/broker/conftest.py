"""One broker per module, shared by its tests; each test has topics of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

from .process import BrokerProcess
from .raw import RawClient

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    with process:
        yield process
        assert process.is_running
    assert not process.tracebacks()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as connection:
        yield connection


@pytest.fixture
def new_name() -> str:
    """A topic name that nothing has used."""
    return f"topic-{next(_numbers)}"


MakeTopic = Callable[..., str]


@pytest.fixture
def make_topic(client: RawClient) -> MakeTopic:
    def make(partitions: int = 1, **configs: str) -> str:
        """Configs are named with underscores in place of dots."""
        return create_topic(client, f"topic-{next(_numbers)}", partitions, configs)

    return make


def create_topic(client: RawClient, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
    (result,) = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code == ErrorCode.NONE, result.error_message
    return name
