"""A secured demo, without Spark: every part logs in as its user, with its rights, and no secret shows."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource

from skylog.audit import AUDIT_TOPIC, Count, ProducerAudit, Report, Tier
from skylog.client import Admin, BrokerUnreachableError, Connection, DeliveryError, Producer
from skylog.demo.access import NEWSFEED_USER, PIPELINE_USER, RIGHTS, WEBSITE_USER, Access
from skylog.demo.broker import DemoBroker
from skylog.demo.final_audit import is_balanced, wait_for_balance
from skylog.demo.layout import APPLICATION, EVENTS, FEED, FEED_UNPARSED, NEWSFEED
from skylog.demo.newsfeed import Newsfeed
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.topic import Topic
from skylog.security.jaas import parse_jaas

TIME_MS = 1_700_000_000_000
WINDOW_MS = TIME_MS // 60_000 * 60_000
COUNT = 300


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Access:
    found = Access(tmp_path_factory.mktemp("demo") / "secrets")
    found.prepare()
    return found


@pytest.fixture(scope="module")
def broker(access: Access, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoBroker]:
    running = DemoBroker(tmp_path_factory.mktemp("demo") / "data", 0, access.server_file)
    running.start()
    try:
        access.grant(running.bootstrap)
        admin = Admin(access.connection(running.bootstrap))
        for topic in (AUDIT_TOPIC, EVENTS):
            admin.create_topic(topic, 1)
        yield running
    finally:
        running.close()


def test_every_part_logs_in_and_the_audit_balances(broker: DemoBroker, access: Access, tmp_path: Path) -> None:
    newsfeed = Newsfeed(broker.bootstrap, login=access.settings(NEWSFEED_USER))
    newsfeed.start()
    audit = ProducerAudit(APPLICATION, journal_dir=tmp_path)
    with Producer(broker.bootstrap, audit=audit, config=access.settings(WEBSITE_USER)) as website:
        for _ in range(COUNT):
            website.send(EVENTS, b"{}", timestamp_ms=TIME_MS)
    counts = [Count(WINDOW_MS, WINDOW_MS + 60_000, COUNT, COUNT * 2)]
    landed = Report(Tier.LANDED, EVENTS, EVENTS, counts, WINDOW_MS, partition=0, start_offset=0, end_offset=COUNT)
    with Producer(broker.bootstrap, config=access.settings(PIPELINE_USER)) as pipeline:
        pipeline.send(AUDIT_TOPIC, landed.encode()).result(30)
    balances = wait_for_balance(access.connection(broker.bootstrap), EVENTS, NEWSFEED, since_ms=0, timeout_s=60)
    assert newsfeed.stop(30)
    assert newsfeed.error is None
    assert is_balanced(balances), balances


def test_the_pipeline_may_keep_events_that_do_not_parse(broker: DemoBroker, access: Access) -> None:
    cluster = Cluster(
        broker.bootstrap, {f"kafka.{key}": value for key, value in access.settings(PIPELINE_USER).items()}
    )
    assert cluster.ensure_topic(Topic(FEED).for_unparsed().name, 1)
    with cluster.producer() as pipeline:
        pipeline.send(FEED_UNPARSED, b"{").result(30)


def test_a_part_may_not_do_the_work_of_another(broker: DemoBroker, access: Access) -> None:
    with (
        Producer(broker.bootstrap, config=access.settings(NEWSFEED_USER)) as newsfeed,
        pytest.raises(DeliveryError, match="authorization failed"),
    ):
        newsfeed.send(EVENTS, b"forged").result(30)
    with pytest.raises(BrokerUnreachableError):
        Admin(Connection(broker.bootstrap, {"security.protocol": "PLAINTEXT"}, timeout_s=5)).list_topics()


def page_of(broker: DemoBroker, access: Access, page: str) -> str:
    login = parse_jaas(access.settings()["sasl.jaas.config"])
    token = base64.b64encode(f"{login['username']}:{login['password']}".encode()).decode()
    request = urllib.request.Request(f"{broker.console_url}{page}", headers={"Authorization": f"Basic {token}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        found: bytes = response.read()
    return found.decode()


def test_the_console_logs_in_and_so_do_its_visitors(broker: DemoBroker, access: Access) -> None:
    assert EVENTS in page_of(broker, access, "/topics")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{broker.console_url}/metrics", timeout=60)


def secrets_of(access: Access) -> set[str]:
    assert access.folder is not None
    passwords = {parse_jaas(access.settings(user)["sasl.jaas.config"])["password"] for user in ("admin", *RIGHTS)}
    assert len(passwords) == 4
    keys = {(access.folder / name).read_text().splitlines()[1] for name in ("broker.pem", "client.pem")}
    return passwords | keys


def test_secrets_are_nowhere(broker: DemoBroker, access: Access) -> None:
    client = access.connection(broker.bootstrap).admin_client()
    asked = client.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")])
    (settings,) = [future.result(60) for future in asked.values()]
    assert any(name.endswith("sasl.jaas.config") for name in settings)
    places = {
        "the log": broker.log(),
        "DescribeConfigs": repr([(name, entry.value) for name, entry in settings.items()]),
        "the list of processes": _command_lines(),
    }
    for page in ("/metrics", "/", "/cluster", "/health"):
        places[page] = page_of(broker, access, page)
    assert str(access.server_file) in places["the list of processes"]
    for secret in secrets_of(access):
        assert [place for place, text in places.items() if secret in text] == []


def _command_lines() -> str:
    """Return what `ps e` shows: the command lines and environments of all processes."""
    found = []
    for path in (*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has just exited
    return "\n".join(found)


def test_a_second_run_continues_with_the_same_secrets(access: Access) -> None:
    before = secrets_of(access)
    access.prepare()
    assert secrets_of(access) == before


def test_without_security_nobody_logs_in() -> None:
    access = Access()
    access.prepare()
    access.grant("127.0.0.1:1")
    assert (access.settings(), access.server_file, access.client_file()) == ({}, None, None)
