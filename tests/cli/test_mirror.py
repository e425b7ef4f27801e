"""`skylog mirror`: a consumer moves to the mirror and back, misses nothing and reads nothing twice."""

from __future__ import annotations

from confluent_kafka import Consumer

from skylog.client import Admin, ConsumerGroups
from skylog.client.connection import Connection
from skylog.testing import BrokerProcess, produce, wait_until
from tests.console.conftest import running_console

from .conftest import Skylog

GROUP = "readers"


def read(bootstrap: str, topic: str, count: int) -> list[int]:
    """Read as a member of the group, commit, and leave."""
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "error"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "session.timeout.ms": 6000})
    consumer.subscribe([topic])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"only {found} arrived"
        assert message.error() is None, message.error()
        found.append(int(message.value() or b""))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def committed(bootstrap: str) -> int | None:
    found = ConsumerGroups(Connection(bootstrap)).list_groups()
    offsets = [each.committed_offset for group in found if group.name == GROUP for each in group.partitions]
    return offsets[0] if offsets else None


def test_a_consumer_moves_to_the_mirror_and_back(skylog: Skylog) -> None:
    with BrokerProcess() as one, BrokerProcess() as two:
        west, east = Skylog(one.bootstrap), Skylog(two.bootstrap)
        assert "mirrors no other" in east("mirror", "list").stderr
        Admin(west.bootstrap).create_topic("clicks", 1)
        produce(west.bootstrap, "clicks", map(str, range(50)))
        west("groups", "reset", GROUP, "--to-earliest", "--topic", "clicks", "--yes")
        found = read(west.bootstrap, "clicks", 20)
        east("mirror", "create", "west", "--from", west.bootstrap, "--topics", "clicks", "--groups", "*")
        wait_until(lambda: committed(east.bootstrap) == 20, "the committed offset")
        produce(west.bootstrap, "clicks", map(str, range(50, 60)))
        wait_until(lambda: _is_at(east, 60), "the mirror")
        two.kill()  # as kill -9 does
        two.start()
        one.kill()
        one.start()
        produce(west.bootstrap, "clicks", map(str, range(60, 70)))
        wait_until(lambda: _is_at(east, 70), "the mirror")
        found += read(east.bootstrap, "clicks", 30)
        assert "it may be a mirror of another cluster" in east("produce", "clicks", stdin="70\n", code=1).stderr
        assert "clicks" in east("mirror", "describe", "west").stdout
        assert f"west of {west.bootstrap}" in east("topics", "describe", "clicks").stdout
        assert east("mirror", "promote", "west", code=1).stderr.count("--yes") == 1
        east("mirror", "pause", "west")
        assert east.json("mirror", "describe", "west", "--json")["status"] == "paused"
        east("mirror", "resume", "west")
        with running_console(two) as console:
            assert "clicks" in console.get("/mirrors").text
            assert console.json("/mirrors")["problem"] is None
        assert east.json("mirror", "promote", "west", "--yes", "--json")["promoted"] == ["clicks"]
        produce(east.bootstrap, "clicks", map(str, range(70, 80)))
        found += read(east.bootstrap, "clicks", 20)
        west("topics", "delete", "clicks", "--yes")
        west("mirror", "create", "east", "--from", east.bootstrap, "--topics", "clicks", "--groups", "*")
        wait_until(lambda: _is_at(west, 80, "east") and committed(west.bootstrap) == 70, "the failback")
        west("mirror", "promote", "east", "--yes")
        produce(west.bootstrap, "clicks", map(str, range(80, 90)))
        found += read(west.bootstrap, "clicks", 20)
        assert found == list(range(90))
        east("mirror", "delete", "west", "--yes")
        assert east.json("mirror", "list", "--json") == []
        east("mirror", "create", "west", "--from", west.bootstrap, "--topics", "clicks", "--groups", "*", "--adopt")
        wait_until(lambda: _is_at(east, 90) and committed(east.bootstrap) == 90, "the continued mirror")


def _is_at(site: Skylog, offset: int, name: str = "west") -> bool:
    from skylog.client.mirrors import MirrorAdmin

    rows = MirrorAdmin(Connection(site.bootstrap)).describe(name).partitions
    return [each.high_watermark for each in rows] == [offset]
