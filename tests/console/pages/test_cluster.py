"""The page of the cluster, and what the other pages show of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from skylog import Admin, ClusterAdmin
from skylog.console.app import create_app
from skylog.console.settings import Settings
from skylog.model import TopicPartition
from skylog.testing import BrokerCluster, BrokerProcess, produce, wait_until
from skylog.testing.loop_thread import LoopThread

Document = dict[str, Any]


class Visitor:
    """Reads pages of a console."""

    def __init__(self, get: Callable[[str, str], httpx.Response]) -> None:
        self._get = get

    def text(self, path: str) -> str:
        return self._get(path, "text/html").text

    def json(self, path: str) -> Document:
        response = self._get(path, "application/json")
        assert response.status_code == 200, response.text
        document: Document = response.json()
        return document

    def broker(self, node_id: int) -> Document:
        return next(each for each in self.json("/cluster")["brokers"] if each["node_id"] == node_id)

    def verdict(self) -> Document:
        return next(each for each in self.json("/")["verdicts"] if each["name"] == "Replicas")


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Three brokers; broker 3 has the only replica of the topic `single`."""
    racks = {1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}}
    with BrokerCluster(3, broker_settings=racks) as cluster:
        admin = Admin(cluster.bootstrap)
        admin.create_topic("orders", 2, 3)
        admin.create_topic("single", 1, 1)
        ClusterAdmin(cluster.bootstrap).reassign({TopicPartition("single", 0): [3]})
        wait_until(lambda: cluster.partition("single").replicas == (3,), "the reassignment")
        yield cluster


@pytest.fixture(scope="module")
def visitor(cluster: BrokerCluster) -> Iterator[Visitor]:
    """A visitor of a console in this process, which looks at the cluster at each request, instead of every 5 s."""
    thread = LoopThread("skylog-console")
    app = create_app(Settings(cluster.bootstrap))
    lifespan = app.router.lifespan_context(app)

    async def get(path: str, accept: str) -> httpx.Response:
        await app.state.consoles[""].replicas.refresh()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            return await client.get(path, headers={"accept": accept})

    thread.run(lifespan.__aenter__())
    try:
        yield Visitor(lambda path, accept: thread.run(get(path, accept)))
    finally:
        thread.run(lifespan.__aexit__(None, None, None))
        thread.close()


def test_the_brokers_are_listed_with_their_load(visitor: Visitor, cluster: BrokerCluster) -> None:
    wait_until(lambda: visitor.broker(3)["replicas"] == 3, "all brokers to know the topics")
    document = visitor.json("/cluster.json")
    assert [(each["node_id"], each["is_live"], each["rack"]) for each in document["brokers"]] == [
        (1, True, "a"),
        (2, True, "b"),
        (3, True, None),
    ]
    assert sum(each["leaders"] for each in document["brokers"]) == document["figures"]["partitions"] == 3
    assert [each["is_controller"] for each in document["brokers"]].count(True) == 1
    assert (document["problems"], document["reassignments"]) == ([], [])
    page = visitor.text("/cluster")
    assert cluster.address(1) in page
    assert "Bytes in and out are available only if a skylog broker started the console" in page


def test_a_healthy_cluster_is_a_good_verdict(visitor: Visitor) -> None:
    assert visitor.verdict() == {
        "name": "Replicas",
        "state": "good",
        "description": "All 3 partitions have a leader and all replicas in sync.",
        "link": "/cluster",
    }


def test_messages_are_counted_for_each_broker_and_bytes_are_not_known(visitor: Visitor) -> None:
    wait_until(lambda: visitor.broker(1)["messages_in_per_s"] is not None, "a second snapshot")
    assert visitor.broker(1)["bytes_in_per_s"] is None


def test_the_size_of_the_logs_and_the_free_space_are_known_of_each_broker(
    visitor: Visitor, cluster: BrokerCluster
) -> None:
    produce(cluster.bootstrap, "orders", [b"x" * 1000])
    cluster.wait_until_in_sync("orders")
    found = visitor.json("/cluster")["brokers"]
    assert [each["disk_free_bytes"] > 0 for each in found] == [True] * 3
    sizes = {
        node_id: sum(path.stat().st_size for path in broker.data_dir.glob("*/*.log"))
        for node_id, broker in cluster.brokers.items()
    }
    assert min(sizes.values()) > 1000
    assert {each["node_id"]: each["stored_bytes"] for each in found} == sizes


def test_a_missing_broker_is_seen_everywhere_until_it_is_back(visitor: Visitor, cluster: BrokerCluster) -> None:
    cluster.kill(3)
    cluster.wait_until_in_sync("orders", replicas=[1, 2])
    wait_until(lambda: cluster.leader_of("single") == -1, "the partition to be offline")
    wait_until(lambda: len(visitor.json("/cluster")["problems"]) == 3, "all brokers to know")
    verdict = visitor.verdict()
    assert (verdict["state"], verdict["description"]) == (
        "bad",
        "single-0 has no leader: nobody can read or write. Broker 3 is missing. "
        "2 partitions have replicas that are not in sync.",
    )
    assert (visitor.broker(3)["is_live"], visitor.broker(3)["host"]) == (False, None)
    figures = visitor.json("/cluster")["figures"]
    assert (figures["offline"], figures["under_replicated"], figures["missing_brokers"]) == (1, 2, 1)
    assert '<span class="tag bad">missing</span>' in visitor.text("/cluster")
    partitions = visitor.json("/topics/orders")["partitions"]
    assert [(each["offline_replicas"], each["is_under_replicated"]) for each in partitions] == [([3], True)] * 2
    assert "3 missing" in visitor.text("/topics/orders")
    assert visitor.json("/topics/single")["partitions"][0]["leader"] == -1
    cluster.start(3)
    cluster.wait_until_in_sync("orders")
    wait_until(lambda: visitor.verdict()["state"] == "good", "all brokers to know")


def test_partitions_that_move_are_listed(visitor: Visitor, cluster: BrokerCluster) -> None:
    admin = ClusterAdmin(cluster.bootstrap)
    cluster.cut_link(1, 3)
    try:
        admin.reassign({TopicPartition("single", 0): [1]})
        wait_until(lambda: visitor.json("/cluster")["reassignments"], "all brokers to know")
        document = visitor.json("/cluster")
        moving = {"topic": "single", "partition": 0, "target": [1], "adding": [1], "removing": [3]}
        assert (document["reassignments"], document["problems"]) == ([moving], [])
        [partition] = visitor.json("/topics/single")["partitions"]
        assert (partition["adding_replicas"], partition["removing_replicas"]) == ([1], [3])
        assert "moving to 1 from 3" in visitor.text("/topics/single")
        admin.cancel_reassignments()
    finally:
        cluster.heal_link(1, 3)


def test_a_single_broker_is_shown_with_what_only_it_knows() -> None:
    with BrokerProcess(console=True) as broker, httpx.Client(base_url=broker.console_url, timeout=30) as client:
        Admin(broker.bootstrap).create_topic("orders", 2)
        visitor = Visitor(lambda path, accept: client.get(path, headers={"accept": accept}))
        found = visitor.broker(1)
        assert (found["is_measured"], found["is_controller"], found["disk_free_bytes"] > 0) == (True, True, True)
        assert "are known only of broker" not in visitor.text("/cluster")
        assert visitor.json("/")["measured_broker"] is None
        assert "no copies on other brokers" in visitor.verdict()["description"]
