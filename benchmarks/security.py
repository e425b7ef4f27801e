"""What TLS costs, beside the same ratio of Apache Kafka, and what access control lists cost.

Each broker has a plain listener and one with TLS, and the same clients use them in turns: only turns that follow each
other are comparable, so a ratio is the median of those of neighbours. For the access control lists two skylog brokers,
without an authorizer and with one that has many rules, take the same small requests in turns.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from benchmarks import frames, load
from benchmarks.clients import Client, together
from benchmarks.clusters import BrokerCluster, KafkaCluster, SkylogCluster, create_topic
from benchmarks.replication import warm_up
from benchmarks.report import Check, Column, Options, Report, Table, median
from skylog.security.development_set import write_development_set

PARTITIONS = 3
BATCH = 1000
PRODUCED, CONSUMED = 300_000, 600_000
WARM_UP_S = 20
CONNECTIONS, IN_FLIGHT = 8, 5
RULES = 1000
ACL_BAR = 1.03
TOPIC = "bench"

Figures = dict[str, float]


class _SecuredKafka(KafkaCluster):
    """Apache Kafka with a second listener, for TLS."""

    tls_port = 0

    def _settings(self, node_id: int) -> str:
        lines = dict(line.split("=", 1) for line in super()._settings(node_id).splitlines())
        secure = f"SSL://127.0.0.1:{self.tls_port}"
        lines["listeners"] += f",{secure}"
        lines["advertised.listeners"] += f",{secure}"
        lines["listener.security.protocol.map"] += ",SSL:SSL"
        return "".join(f"{key}={value}\n" for key, value in lines.items())


def run(options: Options) -> Report:
    report = Report("security", "TLS beside Apache Kafka, and access control lists")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-security-", dir=options.work_dir))
    try:
        _measure_tls(report, work_dir, options)
        _measure_acls(report, work_dir, options)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    return report


# -- TLS


def _measure_tls(report: Report, work_dir: Path, options: Options) -> None:
    rounds = 1 if options.quick else min(options.rounds, 3)
    rows: list[dict[str, Any]] = []
    with _secured(work_dir) as (brokers, authority, note):
        if note:
            report.notes.append(f"without Apache Kafka: {note}")
        for broker, _ in brokers:
            create_topic(broker, TOPIC, PARTITIONS)
            warm_up(broker, 3 if options.quick else WARM_UP_S)
        for what, work in (("produce", _produce), ("consume", _consume)):
            for broker, tls in brokers:
                turns = []
                for _ in range(rounds):
                    plain = _turn(broker, lambda w=work, b=broker: w(b.bootstrap, None, options.quick))  # type: ignore[misc]
                    secure = _turn(broker, lambda w=work, t=tls: w(t, authority, options.quick))  # type: ignore[misc]
                    turns.append((plain, secure))
                rows.append(_row(what, broker.name, turns))
    columns = [
        Column("what", ""),
        Column("broker", "broker"),
        Column("plain", "plain, messages/s", "{:,.0f}"),
        Column("secure", "TLS, messages/s", "{:,.0f}"),
        Column("ratio", "TLS / plain", "{:.2f}"),
        Column("plain_cpu", "plain, CPU µs/message", "{:.2f}"),
        Column("secure_cpu", "TLS, CPU µs/message", "{:.2f}"),
        Column("cpu_ratio", "CPU, TLS / plain", "{:.2f}"),
    ]
    report.tables.append(Table(f"200 bytes a message, batches of {BATCH:,}, TLS 1.3", columns, rows))


@contextmanager
def _secured(work_dir: Path) -> Iterator[tuple[list[tuple[BrokerCluster, str]], Path, str]]:
    """Run the brokers, with the addresses of their TLS listeners. Yield the authority, and why Kafka is missing."""
    from tests.spark.peers.jars import NoJarsError, broker_jars

    secrets = work_dir / "secrets"
    write_development_set(secrets)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(secrets / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secrets / "ca.pem"),
    }
    found: list[tuple[BrokerCluster, str]] = []
    note = ""
    with ExitStack() as stack:
        ours = SkylogCluster(_folder(work_dir, "skylog"), 1, settings)
        port = _free_port()
        ours.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{ours.ports[1]},SSL://127.0.0.1:{port}"
        found.append((stack.enter_context(ours), f"127.0.0.1:{port}"))
        try:
            theirs = _SecuredKafka(_folder(work_dir, "kafka"), broker_jars(), 1, settings)
            theirs.tls_port = _free_port()
            found.append((stack.enter_context(theirs), f"127.0.0.1:{theirs.tls_port}"))
        except NoJarsError as error:
            note = str(error)
        yield found, secrets / "ca.pem", note


def _folder(work_dir: Path, name: str) -> Path:
    folder = work_dir / name
    folder.mkdir()
    return folder


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _turn(broker: BrokerCluster, work: Callable[[], tuple[int, float]]) -> Figures:
    """Return messages per second, and the broker's CPU time per message in microseconds."""
    before = broker.cpu_seconds()
    messages, seconds = work()
    return {"rate": messages / seconds, "cpu": (broker.cpu_seconds() - before) / messages * 1e6}


def _produce(bootstrap: str, authority: Path | None, quick: bool) -> tuple[int, float]:
    messages = PRODUCED // (4 if quick else 1)
    how: dict[str, object] = {"topic": TOPIC, "messages": messages, "batch": BATCH, "producers": PARTITIONS}
    return _finish(Client("produce", bootstrap, linger_ms=100, acks="all", **how, **_tls(authority)))


def _consume(bootstrap: str, authority: Path | None, quick: bool) -> tuple[int, float]:
    messages = CONSUMED // (4 if quick else 1)
    how: dict[str, object] = {"topic": TOPIC, "partitions": PARTITIONS, "messages": messages, "no_pauses": 1}
    return _finish(Client("consume", bootstrap, **how, **_tls(authority)))


def _tls(authority: Path | None) -> dict[str, object]:
    return {} if authority is None else {"authority": str(authority)}


def _finish(client: Client) -> tuple[int, float]:
    [result] = together([client])
    return result["messages"], result["end"] - result["start"]


def _row(what: str, broker: str, turns: list[tuple[Figures, Figures]]) -> dict[str, Any]:
    return {
        "what": what,
        "broker": broker,
        "plain": median([plain["rate"] for plain, _ in turns]),
        "secure": median([secure["rate"] for _, secure in turns]),
        "ratio": median([secure["rate"] / plain["rate"] for plain, secure in turns]),
        "plain_cpu": median([plain["cpu"] for plain, _ in turns]),
        "secure_cpu": median([secure["cpu"] for _, secure in turns]),
        "cpu_ratio": median([secure["cpu"] / plain["cpu"] for plain, secure in turns]),
    }


# -- access control lists


def _measure_acls(report: Report, work_dir: Path, options: Options) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",  # for the rest of what clients do; the topic has rules
    }
    with (
        SkylogCluster(_folder(work_dir, "open"), 1) as without,
        SkylogCluster(_folder(work_dir, "closed"), 1, settings) as with_acls,
    ):
        for broker in (without, with_acls):
            create_topic(broker, TOPIC, 1)
        _add_rules(with_acls, 50 if options.quick else RULES)
        for broker in (without, with_acls):
            _requests(broker, options)  # warm up
        rounds = max(2 * options.rounds, 2)
        turns = [(_requests(without, options), _requests(with_acls, options)) for _ in range(rounds)]
    ratio = median([on / off for off, on in turns])
    row = {"off": median([off for off, _ in turns]), "on": median([on for _, on in turns]), "ratio": ratio}
    columns = [
        Column("off", "off, CPU µs/request", "{:.2f}"),
        Column("on", f"on, with {RULES:,} rules, CPU µs/request", "{:.2f}"),
        Column("ratio", "on / off", "{:.3f}"),
    ]
    report.tables.append(Table("access control lists: one message per request", columns, [row]))
    report.checks.append(Check("CPU time of a request, ACLs on / off", ratio, ACL_BAR, at_most=True))


def _add_rules(broker: BrokerCluster, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def rule(topic: str, user: str) -> AclBinding:
        allow, write = AclPermissionType.ALLOW, AclOperation.WRITE
        return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, "*", write, allow)

    rules = [rule(TOPIC, "User:ANONYMOUS"), *(rule(TOPIC, f"User:u{number}") for number in range(count - 1))]
    for future in admin.create_acls(rules).values():
        future.result(60)


def _requests(broker: BrokerCluster, options: Options) -> float:
    """Return the CPU time of a produce request of one message, in microseconds."""
    request = frames.produce_request(TOPIC, frames.record_batch(1)).data
    before = broker.cpu_seconds()
    done = load.run(
        ("127.0.0.1", broker.ports[1]),
        [[request] * 8] * CONNECTIONS,
        in_flight=IN_FLIGHT,
        error_at=frames.produce_error_at(TOPIC),
        seconds=options.seconds * 3,
    )
    return (broker.cpu_seconds() - before) / done.total_requests * 1e6
