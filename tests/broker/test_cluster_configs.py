"""Broker settings at run time in a cluster: changed through any broker, in force on those they are meant for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from skylog.cluster.broker_configs import BrokerConfigs
from skylog.errors import ErrorCode

from .local_cluster import LocalCluster
from .process import until
from .raw import batch_of
from .test_broker_configs import ALL, FROM_ALL_BROKERS, FROM_THIS_BROKER, LOGGER, change, described
from .test_configs import BROKER, DELETE, SET, TOPIC, alter_one, describe


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Every test leaves it complete, and without settings made at run time."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        yield cluster


@pytest.fixture
def changed(cluster: LocalCluster) -> Iterator[list[tuple[str, str]]]:
    """Keys that a test has set, as (broker, key); they are deleted when it ends."""
    keys: list[tuple[str, str]] = []
    yield keys
    for name, key in keys:
        assert change(cluster.client(1), name, (key, DELETE, None)) == 0


def until_value(cluster: LocalCluster, node_id: int, key: str, text: str, source: int) -> None:
    def found() -> bool:
        config = described(cluster.client(node_id), BROKER, str(node_id), key)
        return (config.value, config.config_source) == (text, source)

    until(found, f"{key}={text} on broker {node_id}")


def test_a_setting_for_all_brokers_is_in_force_on_all(cluster: LocalCluster, changed: list[tuple[str, str]]) -> None:
    cluster.create("t", [1, 2], [2, 3], [3, 1])
    changed.append((ALL, "message.max.bytes"))
    assert change(cluster.client(2), ALL, ("message.max.bytes", SET, "200")) == 0
    for node_id in cluster.brokers:
        until_value(cluster, node_id, "message.max.bytes", "200", FROM_ALL_BROKERS)
        assert described(cluster.client(node_id), TOPIC, "t", "max.message.bytes").value == "200"
        result = cluster.client(node_id).produce("t", batch_of(bytes(500)), partition=node_id - 1)
        assert result.error_code == ErrorCode.MESSAGE_TOO_LARGE
        (config,) = describe(cluster.client(node_id), BROKER, ALL).configs
        assert (config.name, config.value) == ("message.max.bytes", "200")


@pytest.mark.parametrize("through", [1, 2, 3])
def test_a_setting_of_one_broker_is_in_force_on_that_one_through_whichever_it_was_made(
    cluster: LocalCluster, changed: list[tuple[str, str]], through: int
) -> None:
    changed.append(("3", "log.cleaner.backoff.ms"))
    assert change(cluster.client(through), "3", ("log.cleaner.backoff.ms", SET, "77")) == 0
    until_value(cluster, 3, "log.cleaner.backoff.ms", "77", FROM_THIS_BROKER)
    until(lambda: cluster.look(3, lambda broker: broker.compactor._config.log_cleaner_backoff_ms) == 77, "its effect")
    for node_id in (1, 2):
        config = described(cluster.client(node_id), BROKER, str(node_id), "log.cleaner.backoff.ms")
        assert config.value == "15000"


def test_a_broker_describes_itself_only_and_loggers_are_its_own(cluster: LocalCluster) -> None:
    for kind in (BROKER, LOGGER):
        assert describe(cluster.client(1), kind, "1").error_code == 0
        assert describe(cluster.client(1), kind, "2").error_code == ErrorCode.INVALID_REQUEST
    levels: list[tuple[str, int, str | None]] = [("skylog.broker", SET, "INFO")]
    assert alter_one(cluster.client(1), "2", levels, kind=LOGGER).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["4", "-1", "x", "01"])
def test_settings_of_a_broker_that_does_not_exist_are_refused(cluster: LocalCluster, name: str) -> None:
    assert change(cluster.client(1), name, ("log.cleaner.backoff.ms", SET, "77")) == ErrorCode.INVALID_REQUEST


def test_settings_of_another_broker_are_checked(cluster: LocalCluster) -> None:
    for key, text in (("log.cleaner.backoff.ms", "soon"), ("num.partitions", "7"), ("no.such.key", "1")):
        assert change(cluster.client(1), "2", (key, SET, text)) == ErrorCode.INVALID_REQUEST


def test_changes_through_different_brokers_at_the_same_time_are_all_kept(
    cluster: LocalCluster, changed: list[tuple[str, str]]
) -> None:
    keys = {1: "log.cleaner.backoff.ms", 2: "log.retention.ms", 3: "log.roll.ms"}
    changed += [(ALL, key) for key in keys.values()]

    async def change_all() -> None:
        async with cluster.store._writing:  # all of them decide before the first one is stored
            tasks = [
                asyncio.create_task(BrokerConfigs(cluster.sessions[node_id]).change(ALL, partial(_with, key)))
                for node_id, key in keys.items()
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    cluster.run(change_all())
    for node_id in cluster.brokers:
        for key in keys.values():
            until_value(cluster, node_id, key, "7", FROM_ALL_BROKERS)


def _with(key: str, present: Mapping[str, str]) -> dict[str, str]:
    return {**present, key: "7"}


def test_a_broker_that_was_away_has_the_settings_made_meanwhile(
    cluster: LocalCluster, changed: list[tuple[str, str]]
) -> None:
    cluster.stop(3)
    changed.append((ALL, "log.cleaner.backoff.ms"))
    assert change(cluster.client(1), ALL, ("log.cleaner.backoff.ms", SET, "66")) == 0
    assert change(cluster.client(1), "3", ("log.cleaner.backoff.ms", SET, "55")) == ErrorCode.INVALID_REQUEST
    cluster.start(3)
    until_value(cluster, 3, "log.cleaner.backoff.ms", "66", FROM_ALL_BROKERS)


def test_settings_are_followed_after_the_session_has_expired(
    cluster: LocalCluster, changed: list[tuple[str, str]]
) -> None:
    former = cluster.sessions[2]
    cluster.run(former.expire())
    changed.append((ALL, "log.cleaner.backoff.ms"))
    assert change(cluster.client(1), ALL, ("log.cleaner.backoff.ms", SET, "44")) == 0
    until(lambda: cluster.sessions[2] is not former, "another session")
    until_value(cluster, 2, "log.cleaner.backoff.ms", "44", FROM_ALL_BROKERS)


def test_another_address_of_one_broker_is_known_to_all(cluster: LocalCluster) -> None:
    port = cluster.ports[3]
    elsewhere = f"PLAINTEXT://localhost:{port}"
    assert change(cluster.client(1), "3", ("advertised.listeners", SET, elsewhere)) == 0

    def addresses() -> set[str]:
        return {
            each.host
            for node_id in cluster.brokers
            for each in cluster.client(node_id).metadata("t").brokers
            if (each.node_id, each.port) == (3, port)
        }

    until(lambda: addresses() == {"localhost"}, "the address")
    assert change(cluster.client(2), "3", ("advertised.listeners", DELETE, None)) == 0
    until(lambda: addresses() == {"127.0.0.1"}, "the former address")


def test_min_insync_replicas_of_all_brokers_decides_what_is_committed(
    cluster: LocalCluster, changed: list[tuple[str, str]]
) -> None:
    changed.append((ALL, "min.insync.replicas"))
    cluster.create("strict", [1, 3])
    cluster.until_in_sync("strict", [1, 3])
    assert change(cluster.client(2), ALL, ("min.insync.replicas", SET, "2")) == 0
    until_value(cluster, 1, "min.insync.replicas", "2", FROM_ALL_BROKERS)
    cluster.stop(3)
    try:
        until(lambda: cluster.partition("strict").eligible_replicas == (3,), "an eligible replica")
        client = cluster.client(1)
        assert client.produce("strict", batch_of(b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert client.produce("strict", batch_of(b"y"), acks=1).error_code == 0
        assert client.end_offset("strict") == 0
        assert change(cluster.client(2), ALL, ("min.insync.replicas", SET, "1")) == 0
        until(lambda: cluster.partition("strict").eligible_replicas == (), "the eligible replica to go")
        until(lambda: client.end_offset("strict") == 1, "the record to be committed")
    finally:
        cluster.start(3)


def test_unclean_elections_are_allowed_for_all_topics_at_run_time(
    cluster: LocalCluster, changed: list[tuple[str, str]]
) -> None:
    changed.append((ALL, "unclean.leader.election.enable"))
    cluster.create("offline", [2, 3])
    cluster.until_in_sync("offline", [2, 3])
    cluster.stop(3)
    cluster.until_in_sync("offline", [2])
    cluster.stop(2)
    cluster.start(3)
    try:
        assert cluster.partition("offline").leader == -1
        assert change(cluster.client(1), ALL, ("unclean.leader.election.enable", SET, "true")) == 0
        until(lambda: cluster.partition("offline").leader == 3, "an unclean leader")
    finally:
        cluster.start(2)
