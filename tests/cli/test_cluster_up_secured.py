"""`skylog cluster up --secure`: brokers, ZooKeeper and console that only serve who logs in over TLS, and its quotas."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, ThrottleEvent

from skylog.client.kafka_settings import read_client_config
from skylog.config import read_properties
from skylog.development import secrets_of
from skylog.security.jaas import parse_jaas
from skylog.testing import wait_until

from ..descendants import descendants
from .commands import run_skylog
from .test_cluster_up import START_S, Up, needs_java, running


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured") / "data"


@pytest.fixture(scope="module")
def secured(data_dir: Path) -> Iterator[Up]:
    needs_java()
    with running(data_dir, "--secure", "--brokers", "3", "--port", "0", "--console-port", "0") as up:
        yield up
        assert up.stop() == ""


@pytest.fixture
def client(data_dir: Path) -> str:
    return str(secrets_of(data_dir) / "client.properties")


def skylog(*arguments: str, stdin: bytes = b"", config: str = "") -> str:
    done = run_skylog(*arguments, stdin=stdin, variables={"SKYLOG_CONFIG": config})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_who_logs_in_is_served_and_nobody_else(secured: Up, client: str) -> None:
    secured.wait_for(f"export SKYLOG_CONFIG={client}")
    skylog("produce", "letters", "--bootstrap", secured.bootstrap, stdin=b"hello\n", config=client)
    stranger = run_skylog("topics", "list", "--bootstrap", secured.bootstrap)
    assert (stranger.returncode, "if it requires TLS or a login" in stranger.stderr) == (1, True)
    secured.wait_for("log in to the console as admin")
    request = urllib.request.Request(f"{secured.console_url}/topics", headers={"Accept": "application/json"})
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=60)
    login = parse_jaas(read_properties(Path(client).read_text())["sasl.jaas.config"])
    token = base64.b64encode(f"{login['username']}:{login['password']}".encode()).decode()
    request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=60) as response:
        assert "letters" in {topic["name"] for topic in json.load(response)["topics"]}


def test_quotas_are_the_same_on_every_broker_at_once(secured: Up, client: str) -> None:
    def are(wanted: list[dict[str, object]]) -> bool:
        lists = (skylog("quotas", "list", "--json", "--bootstrap", each, config=client) for each in secured.addresses)
        return all(json.loads(found) == wanted for found in lists)

    first, _, last = secured.addresses
    skylog("quotas", "set", "--user", "u", "--producer-byte-rate", "1000", "--bootstrap", first, config=client)
    wanted: list[dict[str, object]] = [{"entity": {"user": "u"}, "quotas": {"producer_byte_rate": 1000.0}}]
    wait_until(lambda: are(wanted), "the quota on every broker", START_S)
    skylog("quotas", "remove", "--user", "u", "--bootstrap", last, config=client)
    wait_until(lambda: are([]), "no quota on any broker", START_S)


def test_a_quota_set_on_one_broker_slows_a_client_down_on_all(secured: Up, client: str) -> None:
    names = ("--user", "admin", "--client-id", "slow")
    skylog("topics", "create", "spread", "--partitions", "3", "--bootstrap", secured.bootstrap, config=client)
    skylog(
        "quotas",
        "set",
        "--user",
        "admin",
        "--producer-byte-rate",
        "100MiB",
        "--bootstrap",
        secured.addresses[0],
        config=client,
    )
    skylog("quotas", "set", *names, "--producer-byte-rate", "1000", "--bootstrap", secured.addresses[0], config=client)

    def throttling_brokers(client_id: str) -> set[int]:
        found: set[int] = set()
        producer = Producer(
            read_client_config(client)
            | {"bootstrap.servers": secured.bootstrap, "client.id": client_id, "throttle_cb": note(found)}
        )
        for partition in (0, 1, 2):
            producer.produce("spread", bytes(40_000), partition=partition)
        assert producer.flush(START_S) == 0
        return found

    def note(found: set[int]) -> Callable[[ThrottleEvent], None]:
        return lambda event: found.add(event.broker_id) if event.throttle_time > 0 else None

    wait_until(lambda: throttling_brokers("slow") == {1, 2, 3}, "all brokers slow it down", START_S)
    assert throttling_brokers("other") == set()
    skylog("quotas", "remove", *names, "--bootstrap", secured.addresses[0], config=client)
    skylog("quotas", "remove", "--user", "admin", "--bootstrap", secured.addresses[0], config=client)


def test_zookeeper_serves_only_those_with_the_brokers_settings(secured: Up, data_dir: Path, client: str) -> None:
    zookeeper = zookeeper_of(secured)
    settings = str(secrets_of(data_dir) / "cluster.properties")
    users = json.loads(skylog("users", "list", "--json", "--zookeeper", zookeeper, config=settings))
    assert [row["user"] for row in users] == ["admin"]
    plain = secrets_of(data_dir) / "plain.properties"
    plain.write_text("zookeeper.connection.timeout.ms=2000\n")
    refused = run_skylog("users", "list", "--zookeeper", zookeeper, variables={"SKYLOG_CONFIG": str(plain)})
    assert (refused.returncode, refused.stdout) == (1, "")


def zookeeper_of(secured: Up) -> str:
    line = next(line for line in descendants(secured.mark).values() if " serve " in line)
    words = line.split()
    return words[words.index("--zookeeper") + 1]
