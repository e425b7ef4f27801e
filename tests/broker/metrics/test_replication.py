"""The metrics of replication, and what the health check says about partitions with too few replicas."""

from __future__ import annotations

from pathlib import Path

from skylog.broker.metrics import Health, collect
from skylog.metric import Metric
from tests.broker.members import Members, in_cluster
from tests.broker.raw import batch_of

from .reading import value

SERVER = "kafka_server_replicamanager"
TOPICS = "kafka_server_brokertopicmetrics"
CONTROLLER = "kafka_controller_kafkacontroller"


async def metrics(members: Members, node_id: int) -> list[Metric]:
    return await collect(members.brokers[node_id])


async def values(members: Members, name: str) -> list[float]:
    """The value of a metric on each broker."""
    return [value(await metrics(members, node_id), name) for node_id in sorted(members.brokers)]


async def fill(members: Members, count: int) -> int:
    """Commit messages on all brokers, and return their size."""
    batch = batch_of(b"x")
    for _ in range(count):
        await members.produce(1, "t", batch)
    await members.until(lambda: all(members.replica(each, "t").high_watermark == count for each in (1, 2, 3)))
    return count * len(batch)


def test_roles_are_counted_on_the_broker_that_has_them(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.create("u", replicas=(2, 3))
        assert await values(members, f"{SERVER}_partitioncount") == [1, 2, 2]
        assert await values(members, f"{SERVER}_leadercount") == [1, 1, 0]
        active = await values(members, f"{CONTROLLER}_activecontrollercount")
        assert sorted(active) == [0, 0, 1]

    in_cluster(tmp_path, scenario)


def test_in_sync_sets_are_counted_by_the_leader(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")

        async def figures() -> list[float]:
            names = ["underreplicatedpartitions", "atminisrpartitioncount", "underminisrpartitioncount"]
            names += ["isrshrinks_total", "isrexpands_total"]
            found = await metrics(members, 1)
            return [value(found, f"{SERVER}_{name}") for name in names]

        assert await figures() == [0, 0, 0, 0, 0]
        await members.stop_following(2, 3)
        await members.change("t", in_sync_replicas=(1, 2))
        assert await figures() == [1, 1, 0, 1, 0]
        await members.change("t", in_sync_replicas=(1,))
        assert await figures() == [1, 0, 1, 2, 0]
        await members.change("t", in_sync_replicas=(1, 2, 3))
        assert await figures() == [0, 0, 0, 2, 1]
        for name in ("underreplicatedpartitions", "isrshrinks_total"):
            assert (await values(members, f"{SERVER}_{name}"))[1:] == [0, 0], name

    in_cluster(tmp_path, scenario)


def test_replicas_that_a_reassignment_adds_are_not_missing(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", replicas=(1, 2))
        await members.stop_following(3)
        await members.change("t", replicas=(1, 2, 3), adding=(3,))
        assert (await values(members, f"{SERVER}_underreplicatedpartitions"))[0] == 0

    in_cluster(tmp_path, scenario)


def test_the_traffic_of_replication_is_counted_apart_from_that_of_clients(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        size = await fill(members, 4)
        await members.fetch(2, "t", 0)
        assert await values(members, f"{TOPICS}_replicationbytesin_total") == [0, size, size]
        assert await values(members, f"{TOPICS}_replicationbytesout_total") == [2 * size, 0, 0]
        by_topic = [
            [value(await metrics(members, each), f"{TOPICS}_{name}_total", topic="t") for each in (1, 2, 3)]
            for name in ("messagesin", "bytesin", "bytesout")
        ]
        assert by_topic == [[4, 0, 0], [size, 0, 0], [0, size, 0]]

    in_cluster(tmp_path, scenario)


def test_messages_in_stay_counted_when_a_former_leader_cuts_them_off(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        size = await fill(members, 2)
        await members.stop_following(2, 3)
        await members.produce(1, "t", batch_of(b"x"), acks=1)
        await members.elect("t", 2)
        await members.until(lambda: members.replica(1, "t").log.log_end_offset == 2)
        found = await metrics(members, 1)
        assert value(found, f"{TOPICS}_messagesin_total", topic="t") == 3
        assert value(found, f"{TOPICS}_bytesin_total", topic="t") == size * 1.5

    in_cluster(tmp_path, scenario)


def test_the_lag_is_that_of_the_slowest_follower(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await fill(members, 1)
        assert await values(members, "skylog_follower_max_lag") == [0, 0, 0]
        await members.stop_following(3)
        for _ in range(5):
            await members.produce(1, "t", batch_of(b"x"), acks=1)
        await members.until(lambda: members.replica(2, "t").log.log_end_offset == 6)
        assert (await values(members, "skylog_follower_max_lag"))[0] == 5
        members.replica(3, "t").follow_watermarks(4, 0)  # the leader's watermark, in a response without the records
        assert await values(members, "kafka_server_replicafetchermanager_maxlag") == [0, 0, 3]

    in_cluster(tmp_path, scenario)


def test_elections_and_partitions_without_a_leader_are_counted_by_the_controller(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        controller = members.controller_id
        leader, other = (each for each in members.brokers if each != controller)
        configs = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}
        await members.create("t", replicas=(leader, controller, other), **configs)
        await members.create("clean", replicas=(leader, controller), **configs)
        await members.create("u", replicas=(leader,))
        await members.stop_following(controller, other)
        await members.change("t", in_sync_replicas=(leader,))
        await members.stop(leader)
        await members.until(lambda: members.image("t").leader != leader)
        found = await metrics(members, controller)
        assert value(found, "skylog_leader_elections_total") == 2
        assert value(found, "kafka_controller_controllerstats_uncleanleaderelections_total") == 1
        assert value(found, f"{CONTROLLER}_offlinepartitionscount") == 1
        assert value(await metrics(members, other), f"{CONTROLLER}_offlinepartitionscount") == 0

    in_cluster(tmp_path, scenario)


def test_expired_sessions_and_failed_changes_of_in_sync_sets_are_counted(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        expired = "kafka_server_sessionexpirelistener_zookeeperexpires_total"
        assert await values(members, expired) == [0, 0, 0]
        await members.sessions[2].expire()
        await members.until(lambda: 2 in members.brokers[1].metadata.image.brokers)
        assert await values(members, expired) == [0, 1, 0]

        in_sync_sets = members.membership(1).in_sync_sets
        await members.stop_following(2, 3)
        in_sync_sets._max_lag_s = 0.0
        members.sessions[1]._has_ended = True  # the store does not take the change
        in_sync_sets._remove_lagging(members.replica(1, "t"))
        await members.until(lambda: in_sync_sets.failed_changes)
        members.sessions[1]._has_ended = False
        assert await values(members, f"{SERVER}_failedisrupdates_total") == [1, 0, 0]

    in_cluster(tmp_path, scenario)


# -- health


def test_a_leader_with_replicas_out_of_sync_is_degraded_but_healthy(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        reports = [await Health(broker).report() for broker in members.live()]
        assert [each.status for each in reports] == ["healthy"] * 3
        await members.stop_following(2, 3)
        await members.produce(1, "t", batch_of(b"x"), acks=1)  # a fetch on its way lets nobody join again
        await members.change("t", in_sync_replicas=(1,))
        reports = [await Health(broker).report() for broker in members.live()]
        assert [(each.healthy, each.status) for each in reports] == [
            (True, "degraded"),
            (True, "healthy"),
            (True, "healthy"),
        ]
        sentence = "t-0 has replicas that are out of sync, on brokers 2, 3"
        assert reports[0].warnings == [f"{sentence}, and takes no messages with acks=all: 1 of 2 are in sync"]
        topics = members.brokers[1].topics
        await topics.configure(topics.get("t"), lambda now: {**now, "min.insync.replicas": "1"})
        assert (await Health(members.live()[0]).report()).warnings == [sentence]

    in_cluster(tmp_path, scenario)


def test_a_partition_without_a_leader_is_critical_where_it_has_a_replica(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", replicas=(1, 2))
        await members.stop_following(2)
        await members.produce(1, "t", batch_of(b"x"), acks=1)  # a fetch on its way lets nobody join again
        await members.change("t", in_sync_replicas=(1,))
        await members.stop(1)
        await members.until(lambda: members.image("t").leader == -1)
        reports = [await Health(broker).report() for broker in members.live()]
        assert [(each.healthy, each.status) for each in reports] == [(False, "critical"), (True, "healthy")]
        (problem,) = reports[0].problems
        assert problem == "t-0 has no leader: it waits for broker 1, which has all of its messages"

    in_cluster(tmp_path, scenario)
