"""A broker's configuration at run time: changed, described, effective immediately, kept over a restart (KIP-226)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient

from skylog.cluster import EmbeddedStore
from skylog.cluster.broker_configs import BrokerConfigs
from skylog.errors import ErrorCode
from skylog.protocol import alter_configs as whole
from skylog.protocol import incremental_alter_configs as incremental
from skylog.protocol.api_versions import ApiVersionsRequest

from .conftest import MakeTopic, create_topic
from .process import BrokerProcess, BrokerThread
from .raw import RawClient, batch_of
from .test_configs import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, alter_one, describe

LOGGER = 8
FROM_TOPIC, FROM_THIS_BROKER, FROM_ALL_BROKERS, FROM_START, FROM_DEFAULT, FROM_LOGGER = range(1, 7)
THIS, ALL = "1", ""


@pytest.fixture
def changed(client: RawClient) -> Iterator[list[tuple[str, str]]]:
    """Keys that a test has set, as (broker, key); they are deleted when it ends."""
    keys: list[tuple[str, str]] = []
    yield keys
    for name, key in keys:
        assert change(client, name, (key, DELETE, None)) == 0


def change(client: RawClient, name: str, *changes: tuple[str, int, str | None], **options: Any) -> int:
    code: int = alter_one(client, name, list(changes), kind=BROKER, **options).error_code
    return code


def described(client: RawClient, kind: int, name: str, key: str) -> Any:
    (config,) = describe(client, kind, name, keys=[key], include_synonyms=True).configs
    return config


def synonyms(config: Any) -> list[tuple[str, str, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


def test_the_effective_value_is_this_brokers_then_all_brokers_then_that_of_startup(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", {"log.retention.hours": "1"})
    with broker, RawClient(broker.port) as client:
        create_topic(client, "t")
        create_topic(client, "own", configs={"retention_ms": "7"})
        start = [("log.retention.ms", "3600000", FROM_START), ("log.retention.ms", "604800000", FROM_DEFAULT)]
        assert synonyms(described(client, TOPIC, "t", "retention.ms")) == start
        assert change(client, ALL, ("log.retention.ms", SET, "3000")) == 0
        assert change(client, THIS, ("log.retention.ms", SET, "2000")) == 0
        everything = [
            ("log.retention.ms", "2000", FROM_THIS_BROKER),
            ("log.retention.ms", "3000", FROM_ALL_BROKERS),
            *start,
        ]
        for kind, name, key in ((BROKER, THIS, "log.retention.ms"), (TOPIC, "t", "retention.ms")):
            config = described(client, kind, name, key)
            assert (config.value, config.config_source) == ("2000", FROM_THIS_BROKER)
            assert synonyms(config) == everything
        config = described(client, TOPIC, "own", "retention.ms")
        assert (config.value, config.config_source) == ("7", FROM_TOPIC)
        assert synonyms(config) == [("retention.ms", "7", FROM_TOPIC), *everything]
        (config,) = describe(client, BROKER, ALL, include_synonyms=True).configs
        assert (config.name, config.value, config.config_source) == ("log.retention.ms", "3000", FROM_ALL_BROKERS)
        assert synonyms(config) == everything[1:2]
        assert change(client, THIS, ("log.retention.ms", DELETE, None)) == 0
        assert described(client, TOPIC, "t", "retention.ms").value == "3000"
        assert change(client, ALL, ("log.retention.ms", DELETE, None)) == 0
        assert synonyms(described(client, TOPIC, "t", "retention.ms")) == start


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_dynamic_settings_survive_a_restart_and_apply_from_the_start(tmp_path: Path, how: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t")
            assert change(client, ALL, ("message.max.bytes", SET, "200"), ("log.cleaner.backoff.ms", SET, "99")) == 0
            assert change(client, THIS, ("advertised.listeners", SET, "PLAINTEXT://example.org:1234")) == 0
        getattr(broker, how)()
        broker.start()
        with RawClient(broker.port) as client:
            assert described(client, BROKER, THIS, "log.cleaner.backoff.ms").value == "99"
            assert described(client, BROKER, THIS, "message.max.bytes").config_source == FROM_ALL_BROKERS
            assert client.produce("t", batch_of(bytes(500))).error_code == ErrorCode.MESSAGE_TOO_LARGE
            (node,) = client.metadata().brokers
            assert (node.host, node.port) == ("example.org", 1234)


def test_a_new_default_is_in_force_at_once_for_every_topic_that_does_not_set_its_own(
    client: RawClient, make_topic: MakeTopic, changed: list[tuple[str, str]]
) -> None:
    inheriting, own = make_topic(), make_topic(max_message_bytes="100000")
    large = batch_of(bytes(500))
    for topic in (inheriting, own):
        for _ in range(3):
            assert client.produce(topic, large).error_code == 0
    changed.append((ALL, "message.max.bytes"))
    assert change(client, ALL, ("message.max.bytes", SET, "200")) == 0
    assert client.produce(inheriting, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce(own, large).error_code == 0
    assert client.produce(make_topic(), large).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_the_advertised_address_follows(client: RawClient, changed: list[tuple[str, str]]) -> None:
    changed.append((THIS, "advertised.listeners"))
    assert change(client, THIS, ("advertised.listeners", SET, "PLAINTEXT://[::1]:77")) == 0
    (node,) = client.metadata().brokers
    assert (node.host, node.port) == ("::1", 77)


@pytest.mark.parametrize("key", ["max.connections", "listener.name.plaintext.max.connections"])
def test_the_limit_of_connections_follows(
    broker: BrokerProcess, client: RawClient, changed: list[tuple[str, str]], key: str
) -> None:
    changed.append((ALL, key))
    assert change(client, ALL, (key, SET, "1")) == 0
    assert described(client, BROKER, THIS, key).value == "1"
    with RawClient(broker.port) as second:
        second.send(ApiVersionsRequest(), 0)
        assert not second.has_answer(0.2)
        assert change(client, ALL, (key, SET, "1000")) == 0
        assert second.receive().error_code == 0


def test_background_jobs_follow(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as thread, RawClient(thread.port) as client:
        assert change(client, ALL, ("producer.id.expiration.ms", SET, "5"), ("log.cleaner.backoff.ms", SET, "6")) == 0
        assert change(client, THIS, ("log.cleaner.dedupe.buffer.size", SET, "1048576")) == 0
        assert thread.look(lambda broker: broker.housekeeping._config.producer_id_expiration_ms) == 5
        assert thread.look(lambda broker: broker.compactor._config.log_cleaner_backoff_ms) == 6
        assert thread.look(lambda broker: broker.compactor._config.log_cleaner_dedupe_buffer_size) == 1048576


REFUSED: list[tuple[str, tuple[str, int, str | None]]] = [
    (THIS, ("num.partitions", SET, "2")),
    (THIS, ("node.id", SET, "2")),
    (THIS, ("broker.id", SET, "2")),
    (THIS, ("log.dirs", SET, "/tmp")),
    (THIS, ("log.retention.hours", SET, "2")),
    (ALL, ("log.message.format.version", SET, "2.8")),
    (ALL, ("advertised.listeners", SET, "PLAINTEXT://a:1")),
    (THIS, ("advertised.listeners", SET, "nonsense")),
    (THIS, ("no.such.key", SET, "2")),
    (THIS, ("retention.ms", SET, "2")),
    (THIS, ("log.retention.ms", SET, "soon")),
    (ALL, ("log.retention.ms", SET, "-2")),
    (THIS, ("log.retention.ms", SET, None)),
    (THIS, ("log.cleaner.min.compaction.lag.ms", SET, str(2**63 - 1))),
    ("7", ("log.retention.ms", SET, "2")),
    ("x", ("log.retention.ms", SET, "2")),
]


@pytest.mark.parametrize(("name", "refused"), REFUSED)
def test_an_invalid_dynamic_setting_changes_nothing(
    client: RawClient, name: str, refused: tuple[str, int, str | None]
) -> None:
    if refused[0] == "log.cleaner.min.compaction.lag.ms":
        also = ("log.cleaner.max.compaction.lag.ms", SET, "5")
    else:
        also = ("log.flush.interval.ms", SET, "1")
    before = describe(client, BROKER, THIS)
    assert change(client, name, also, refused) == ErrorCode.INVALID_REQUEST
    assert describe(client, BROKER, THIS) == before
    assert describe(client, BROKER, ALL).configs == []


def test_validate_only_checks_and_sets_nothing(client: RawClient) -> None:
    assert change(client, THIS, ("log.retention.ms", SET, "5"), validate_only=True) == 0
    assert described(client, BROKER, THIS, "log.retention.ms").config_source == FROM_DEFAULT
    code = change(client, THIS, ("num.partitions", SET, "5"), validate_only=True)
    assert code == ErrorCode.INVALID_REQUEST


def test_lists_of_the_broker_grow_and_shrink(client: RawClient, changed: list[tuple[str, str]]) -> None:
    changed.append((ALL, "log.cleanup.policy"))
    assert change(client, ALL, ("log.cleanup.policy", APPEND, "compact")) == 0
    assert described(client, BROKER, THIS, "log.cleanup.policy").value == "delete,compact"
    assert change(client, ALL, ("log.cleanup.policy", SUBTRACT, "delete")) == 0
    assert described(client, BROKER, THIS, "log.cleanup.policy").value == "compact"
    assert change(client, ALL, ("log.retention.ms", APPEND, "5")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_that_was_set(
    client: RawClient, changed: list[tuple[str, str]], version: int
) -> None:
    changed += [(THIS, "log.retention.ms"), (THIS, "log.roll.ms")]

    def replace(**configs: str) -> int:
        rows = [whole.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        resource = whole.AlterConfigsResource(resource_type=BROKER, resource_name=THIS, configs=rows)
        code: int = client.ask(whole.AlterConfigsRequest(resources=[resource]), version).responses[0].error_code
        return code

    assert replace(log_retention_ms="9", log_roll_ms="8") == 0
    assert described(client, BROKER, THIS, "log.roll.ms").value == "8"
    assert replace(log_retention_ms="9") == 0
    assert described(client, BROKER, THIS, "log.roll.ms").config_source == FROM_DEFAULT
    assert described(client, BROKER, THIS, "log.retention.ms").value == "9"
    assert replace(num_partitions="9") == ErrorCode.INVALID_REQUEST


def test_the_broker_names_its_directory_and_its_number(broker: BrokerProcess, client: RawClient) -> None:
    found = {config.name: config for config in describe(client, BROKER, THIS).configs}
    for key, value in {"log.dirs": str(broker.data_dir.absolute()), "node.id": "1", "broker.id": "1"}.items():
        assert (found[key].value, found[key].config_source, found[key].read_only) == (value, FROM_START, True)
    dynamic = {key for key, config in found.items() if not config.read_only}
    assert {"advertised.listeners", "log.retention.ms", "message.max.bytes", "max.connections"} <= dynamic
    assert not dynamic & {"num.partitions", "log.message.format.version", "offsets.topic.num.partitions"}
    assert found["advertised.listeners"].value is None


def test_the_number_of_the_broker_may_be_given_by_its_older_name(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"broker.id": "5"}) as broker, RawClient(broker.port) as client:
        assert [node.node_id for node in client.metadata().brokers] == [5]
        assert described(client, BROKER, "5", "node.id").value == "5"


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_a_repeated_resource_is_refused_each_time(client: RawClient, make_topic: MakeTopic, kind: int) -> None:
    name = make_topic() if kind == TOPIC else THIS
    key = "flush.ms" if kind == TOPIC else "log.flush.interval.ms"
    row = incremental.AlterableConfig(name=key, config_operation=SET, value="1")
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[row])
    responses = client.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource] * 2), 1).responses
    assert [each.error_code for each in responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert described(client, kind, name, key).config_source == FROM_DEFAULT


def test_a_stored_key_that_no_longer_fits_does_not_keep_the_broker_from_starting(tmp_path: Path) -> None:
    async def store() -> None:
        configs = BrokerConfigs(EmbeddedStore(tmp_path).open_session())
        stored = {"log.retention.ms": "1234", "log.roll.ms": "never", "gone.with.an.upgrade": "1"}
        await configs.change(ALL, lambda _: stored)

    asyncio.run(store())
    with BrokerProcess(tmp_path) as broker, RawClient(broker.port) as client:
        assert described(client, BROKER, THIS, "log.retention.ms").value == "1234"
        assert described(client, BROKER, THIS, "log.roll.ms").config_source == FROM_DEFAULT
        assert change(client, ALL, ("log.preallocate", SET, "true")) == 0
        assert "log.roll.ms=never" in broker.stderr()
        assert "gone.with.an.upgrade" in broker.stderr()


# -- loggers (KIP-412)


def level(client: RawClient, name: str) -> str:
    (config,) = describe(client, LOGGER, THIS, keys=[name]).configs
    assert (config.config_source, config.read_only) == (FROM_LOGGER, False)
    value: str = config.value
    return value


def test_levels_of_loggers_are_described_and_changed(client: RawClient) -> None:
    name = "skylog.broker.housekeeping"
    inherited = level(client, name)
    assert level(client, "root") in ("WARN", "INFO")
    assert alter_one(client, THIS, [(name, SET, "DEBUG")], kind=LOGGER, validate_only=True).error_code == 0
    assert level(client, name) == inherited
    assert alter_one(client, THIS, [(name, SET, "ERROR")], kind=LOGGER).error_code == 0
    assert level(client, name) == "ERROR"
    assert alter_one(client, THIS, [(name, DELETE, None)], kind=LOGGER).error_code == 0
    assert level(client, name) == inherited


@pytest.mark.parametrize(
    ("broker_name", "wrong", "code"),
    [
        (THIS, ("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (THIS, ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (THIS, ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (THIS, ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (ALL, ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("7", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_level_that_cannot_be_set_is_refused(
    client: RawClient, broker_name: str, wrong: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert alter_one(client, broker_name, [wrong], kind=LOGGER).error_code == code
    if broker_name != THIS:
        assert describe(client, LOGGER, broker_name).error_code == ErrorCode.INVALID_REQUEST


def test_the_older_api_does_not_know_loggers(client: RawClient) -> None:
    resource = whole.AlterConfigsResource(resource_type=LOGGER, resource_name=THIS, configs=[])
    (result,) = client.ask(whole.AlterConfigsRequest(resources=[resource]), 2).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST


# -- third-party clients


def test_confluent_kafka_changes_a_running_broker(
    broker: BrokerProcess, client: RawClient, changed: list[tuple[str, str]]
) -> None:
    changed.append((THIS, "log.retention.ms"))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("log.retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, THIS, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
    (found,) = [
        future.result(10) for future in admin.describe_configs([ConfigResource(ResourceType.BROKER, THIS)]).values()
    ]
    assert found["log.retention.ms"].value == "12345"
    assert found["log.retention.ms"].source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    assert not found["log.retention.ms"].is_read_only
    assert found["log.dirs"].is_read_only


def test_kafka_python_changes_a_running_broker(
    broker: BrokerProcess, client: RawClient, changed: list[tuple[str, str]]
) -> None:
    changed.append((THIS, "log.roll.ms"))
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.alter_configs([KafkaPythonResource(ConfigResourceType.BROKER, THIS, configs={"log.roll.ms": "54321"})])
        assert described(client, BROKER, THIS, "log.roll.ms").value == "54321"
        assert "54321" in str(admin.describe_configs([KafkaPythonResource(ConfigResourceType.BROKER, THIS)]))
    finally:
        admin.close()
