"""CreateTopics, CreatePartitions, DeleteTopics and topic configs through any broker of a cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skylog.cluster import EmbeddedSession
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from skylog.protocol.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState

from .local_cluster import LocalCluster
from .loop_cluster import LoopCluster
from .process import until
from .raw import batch_of
from .test_configs import DELETE, SET, alter_one, value

RACKS = {1: "east", 2: "east", 3: "west", 4: "west"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Every test leaves it complete."""
    racks = {node_id: {"broker.rack": rack} for node_id, rack in RACKS.items()}
    settings = {"default.replication.factor": "2", "num.partitions": "3"}
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 4, settings, racks) as cluster:
        yield cluster


def create(cluster: LocalCluster, name: str, through: int = 1, **fields: Any) -> ErrorCode:
    wanted = CreatableTopic(name=name, **{"num_partitions": -1, "replication_factor": -1, **fields})
    (result,) = cluster.client(through).ask(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert bool(result.error_message) == bool(result.error_code)
    return ErrorCode(result.error_code)


def grow(cluster: LocalCluster, name: str, count: int, rows: list[list[int]] | None = None) -> ErrorCode:
    given = None if rows is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in rows]
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=given)
    (result,) = cluster.client(2).ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=1000), 3).results
    return ErrorCode(result.error_code)


def replicas(cluster: LocalCluster, name: str, through: int = 1) -> list[list[int]]:
    return [row.replica_nodes for row in cluster.client(through).topic(name).partitions]


def assigned(*rows: list[int]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(rows)]


def test_replicas_are_spread_evenly_and_over_the_racks(cluster: LocalCluster) -> None:
    assert create(cluster, "spread", num_partitions=16, replication_factor=2) == 0
    found = replicas(cluster, "spread")
    assert Counter(ids[0] for ids in found) == dict.fromkeys(RACKS, 4)
    assert Counter(node_id for ids in found for node_id in ids) == dict.fromkeys(RACKS, 8)
    assert all({RACKS[node_id] for node_id in ids} == {"east", "west"} for ids in found)


def test_topics_with_one_partition_are_spread_too(cluster: LocalCluster) -> None:
    for number in range(40):
        assert create(cluster, f"single-{number}", num_partitions=1, replication_factor=1) == 0
    assert {ids[0] for number in range(40) for ids in replicas(cluster, f"single-{number}")} == set(RACKS)


def test_new_partitions_continue_the_assignment(cluster: LocalCluster) -> None:
    assert create(cluster, "grown", num_partitions=2, replication_factor=2) == 0
    before = replicas(cluster, "grown")
    assert grow(cluster, "grown", 8) == 0
    found = replicas(cluster, "grown", through=2)
    assert found[:2] == before
    assert Counter(ids[0] for ids in found) == dict.fromkeys(RACKS, 2)
    assert all({RACKS[node_id] for node_id in ids} == {"east", "west"} for ids in found)


@pytest.mark.parametrize("through", [1, 2, 3, 4])
def test_a_topic_that_is_created_through_any_broker_has_the_defaults_and_is_served_by_its_leader(
    cluster: LocalCluster, through: int
) -> None:
    name = f"through-{through}"
    assert create(cluster, name, through) == 0
    (found,) = cluster.client(through).metadata(name).topics
    assert [len(row.replica_nodes) for row in found.partitions] == [2, 2, 2]
    for row in found.partitions:
        leader = cluster.client(row.leader_id)
        batch = batch_of(b"x")
        until(lambda: leader.produce(name, batch, partition=row.partition_index).error_code == 0, "the leader")  # noqa: B023


def test_a_topic_is_created_by_metadata_with_the_defaults(cluster: LocalCluster) -> None:
    (found,) = cluster.client(3).metadata("automatic", create=True).topics
    assert [len(row.replica_nodes) for row in found.partitions] == [2, 2, 2]


@pytest.mark.parametrize(
    "rows",
    [assigned([5]), assigned([1, 9]), assigned([1, 1]), assigned([1, 2], [3]), assigned([1], [])],
)
def test_an_assignment_must_name_different_live_brokers(
    cluster: LocalCluster, rows: list[CreatableReplicaAssignment]
) -> None:
    assert create(cluster, "wrong", assignments=rows) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_more_replicas_than_brokers_are_refused(cluster: LocalCluster) -> None:
    code = create(cluster, "large", num_partitions=1, replication_factor=5)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_assignment_of_new_partitions_needs_as_many_replicas_as_the_others_have(cluster: LocalCluster) -> None:
    cluster.create("pairs", [4, 1])
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(cluster, "pairs", 2, [[2]]) == grow(cluster, "pairs", 2, [[1, 2, 3]]) == invalid
    assert grow(cluster, "pairs", 2, [[2, 9]]) == grow(cluster, "pairs", 3, [[2, 3]]) == invalid
    assert grow(cluster, "pairs", 2, [[2, 3]]) == 0
    assert replicas(cluster, "pairs", through=2) == [[4, 1], [2, 3]]


def test_a_topic_is_deleted_through_a_broker_that_has_no_replica_of_it(cluster: LocalCluster) -> None:
    cluster.create("gone", [1, 2])
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1000)
    assert cluster.client(4).ask(request, 6).responses[0].error_code == 0
    for node_id in cluster.brokers:
        until(lambda: not cluster.look(node_id, lambda broker: broker.replicas.of_topic("gone")), "its removal")  # noqa: B023
    assert create(cluster, "gone") == 0


def test_brokers_that_are_away_or_stopping_get_no_replicas(cluster: LocalCluster) -> None:
    cluster.stop(4)
    try:
        assert create(cluster, "three", num_partitions=6, replication_factor=1) == 0
        assert {ids[0] for ids in replicas(cluster, "three")} == {1, 2, 3}
        assert create(cluster, "four", replication_factor=4, num_partitions=1) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert create(cluster, "four", assignments=assigned([4])) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    finally:
        cluster.start(4)


def test_a_config_that_is_changed_through_one_broker_is_in_force_on_all(cluster: LocalCluster) -> None:
    cluster.create("small", [3, 1])
    assert alter_one(cluster.client(2), "small", [("max.message.bytes", SET, "100")]).error_code == 0
    for node_id in cluster.brokers:
        until(lambda: value(cluster.client(node_id), "small", "max.message.bytes") == "100", "the config")  # noqa: B023
    until(
        lambda: cluster.client(3).produce("small", batch_of(bytes(500))).error_code == ErrorCode.MESSAGE_TOO_LARGE,
        "its effect",
    )


def test_changes_of_different_keys_through_different_brokers_at_the_same_time_are_all_kept(
    cluster: LocalCluster,
) -> None:
    cluster.create("busy", [1])
    keys = {1: "retention.ms", 2: "segment.ms", 3: "flush.ms"}

    async def change_all() -> None:
        brokers = {node_id: cluster.brokers[node_id] for node_id in keys}
        async with cluster.store._writing:  # all of them decide before the first one is stored
            tasks = [
                asyncio.create_task(broker.topics.configure(broker.topics.get("busy"), partial(_with, keys[node_id])))
                for node_id, broker in brokers.items()
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    cluster.run(change_all())
    for node_id in cluster.brokers:
        configs = cluster.look(node_id, lambda broker: broker.topics.get("busy").configs)
        assert configs == dict.fromkeys(keys.values(), "1000")


def _with(key: str, present: Mapping[str, str]) -> dict[str, str]:
    return {**present, key: "1000"}


@pytest.mark.parametrize("operation", [SET, DELETE])
def test_eligible_replicas_are_removed_together_with_the_setting_that_made_them(
    cluster: LocalCluster, operation: int
) -> None:
    """Otherwise the leader would commit without them, and they could still be elected."""
    name = f"strict-{operation}"
    cluster.create(name, [1, 4], min_insync_replicas="2")
    cluster.until_in_sync(name, [1, 4])
    cluster.stop(4)
    try:
        until(lambda: cluster.partition(name).eligible_replicas == (4,), "an eligible replica")
        versions = []
        cluster.look(1, lambda broker: broker.metadata.listen(lambda _, now: versions.append(now.topics.get(name))))
        text = "1" if operation == SET else None
        assert alter_one(cluster.client(2), name, [("min.insync.replicas", operation, text)]).error_code == 0
        until(lambda: cluster.partition(name).eligible_replicas == (), "the eligible replica to go")
        changed = next(topic for topic in versions if topic is not None and "2" not in topic.configs.values())
        assert changed.partitions[0].eligible_replicas == ()
        assert cluster.client(1).produce(name, batch_of(b"x")).error_code == 0
    finally:
        cluster.start(4)


def test_a_broker_that_stops_while_it_opens_logs_waits_for_that(cluster: LocalCluster) -> None:
    """Logs that were opened after the data directory is closed would never be closed."""
    broker = cluster.brokers[4]

    async def hold_folders() -> None:
        await broker.replicas._folders.in_use.acquire()

    cluster.run(hold_folders())
    assert create(cluster, "late", assignments=assigned([4, 1])) == 0
    cluster.look(4, lambda each: asyncio.get_running_loop().call_later(0.2, each.replicas._folders.in_use.release))
    cluster.stop(4)
    try:
        assert not broker.replicas._background
        assert [partition.name for partition in broker.replicas.of_topic("late")] == [("late", 0)]
    finally:
        cluster.start(4)


def test_a_topic_whose_entry_could_become_too_large_for_the_store_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may shrink, though. Without that, an election could fail because of its size."""

    async def run() -> None:
        async with LoopCluster(tmp_path) as cluster:
            await cluster.start(1)
            topics = cluster.brokers[1].topics
            topic = await cluster.create("t", *[[1]] * 3, retention_ms="5000")
            monkeypatch.setattr(EmbeddedSession, "max_commit_bytes", 1000)
            listed = ",".join(f"{index}:1" for index in range(100))
            for refused in (
                topics.create("large", [[1]] * 10),
                topics.grow(topic, [[1]] * 7),
                topics.configure(topic, lambda configs: {**configs, "leader.replication.throttled.replicas": listed}),
            ):
                with pytest.raises(KafkaError, match="bytes in the metadata store, of at most 500") as caught:
                    await refused
                assert caught.value.code is ErrorCode.INVALID_REQUEST
            assert not list(cluster.data_dir(1).glob("large*"))
            assert topics.get("t") == topic
            monkeypatch.setattr(EmbeddedSession, "max_commit_bytes", 100)
            assert (await topics.configure(topic, lambda _: {})).configs == {}

    asyncio.run(run())
