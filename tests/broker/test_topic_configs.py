"""The keys of a topic: Kafka's names, types, ranges and defaults, and their effects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient

from skylog.errors import ErrorCode

from .conftest import MakeTopic, create_topic
from .process import BrokerProcess, until
from .raw import RawClient, batch_of, values_in
from .test_configs import APPEND, DELETE, FROM_TOPIC, SET, SUBTRACT, TOPIC, alter_one, describe, value

BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7
FLAG = (["true", "false", "TRUE"], ["yes", ""])
REPLICAS = (["*", "0:1", "0:1,1:2", ""], ["1", "a:b", "*,0:1", "0:1:2"])
KEYS: list[tuple[str, str, int, tuple[list[str], list[str]]]] = [
    ("unclean.leader.election.enable", "false", BOOLEAN, FLAG),
    ("file.delete.delay.ms", "60000", LONG, (["0", "1"], ["-1", "x"])),
    ("preallocate", "false", BOOLEAN, FLAG),
    (
        "message.format.version",
        "3.0-IV1",
        STRING,
        (["0.8.2", "0.10.0-IV1", "2.8", "3.9-IV0"], ["4.5", "2.9", "new", ""]),
    ),
    ("message.downconversion.enable", "true", BOOLEAN, FLAG),
    ("message.timestamp.difference.max.ms", str(2**63 - 1), LONG, (["0"], ["-1"])),
    ("remote.storage.enable", "false", BOOLEAN, (["false"], ["true", "x"])),
    ("remote.log.copy.disable", "false", BOOLEAN, FLAG),
    ("remote.log.delete.on.disable", "false", BOOLEAN, FLAG),
    ("local.retention.ms", "-2", LONG, (["-2", "-1", "0"], ["-3"])),
    ("local.retention.bytes", "-2", LONG, (["-2", "-1", "0"], ["-3"])),
    ("leader.replication.throttled.replicas", "", LIST, REPLICAS),
    ("follower.replication.throttled.replicas", "", LIST, REPLICAS),
    ("compression.gzip.level", "-1", INT, (["-1", "1", "9"], ["0", "10", "-2"])),
    ("compression.lz4.level", "9", INT, (["1", "17"], ["0", "18"])),
    ("compression.zstd.level", "3", INT, (["-131072", "0", "22"], ["-131073", "23"])),
    ("retention.bytes", "-1", LONG, (["-1", "-7", "0"], ["x"])),
    ("cleanup.policy", "delete", LIST, (["", "compact", "delete,compact"], ["burn", "delete,burn"])),
]


@pytest.mark.parametrize(("key", "default", "kind", "values"), KEYS)
def test_a_key_of_kafka_is_accepted_validated_stored_and_described(
    client: RawClient, make_topic: MakeTopic, key: str, default: str, kind: int, values: tuple[list[str], list[str]]
) -> None:
    topic = make_topic()
    (config,) = describe(client, TOPIC, topic, keys=[key], include_synonyms=True).configs
    assert (config.value, config.config_type, config.read_only) == (default, kind, False)
    good, bad = values
    for text in good:
        result = alter_one(client, topic, [(key, SET, text)])
        assert result.error_code == 0, (text, result.error_message)
        (config,) = describe(client, TOPIC, topic, keys=[key]).configs
        assert (config.value, config.config_source) == (text.lower() if kind == BOOLEAN else text, FROM_TOPIC)
    for text in bad:
        result = alter_one(client, topic, [(key, SET, text)])
        assert (result.error_code, text) == (ErrorCode.INVALID_CONFIG, text)
        assert result.error_message.startswith(f"{key}={text}")
    alter_one(client, topic, [(key, DELETE, None)])
    assert value(client, topic, key) == default


def test_a_topic_may_be_created_with_every_key_of_kafka(client: RawClient, new_name: str) -> None:
    configs = {key: values[0][0] for key, _, _, values in KEYS}
    create_topic(client, new_name, configs=configs)
    for key, text in configs.items():
        assert value(client, new_name, key) == text


def test_lags_that_exclude_each_other_are_refused(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(max_compaction_lag_ms="100")
    result = alter_one(client, topic, [("min.compaction.lag.ms", SET, "101")])
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "max.compaction.lag.ms=100" in result.error_message
    assert alter_one(client, topic, [("min.compaction.lag.ms", SET, "100")]).error_code == 0


def test_a_list_does_not_grow_beyond_the_limit_of_every_version(client: RawClient, make_topic: MakeTopic) -> None:
    topic, key = make_topic(), "leader.replication.throttled.replicas"
    codes = []
    for start in range(0, 10_000, 500):
        more = ",".join(f"{number}:1" for number in range(start, start + 500))
        codes.append(alter_one(client, topic, [(key, APPEND, more)]).error_code)
    assert set(codes) == {0, ErrorCode.INVALID_CONFIG}
    assert len(describe(client, TOPIC, topic, keys=[key], version=1).configs[0].value) > 1000


def test_the_older_time_bound_sets_the_newer_ones(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_difference_max_ms="1000")
    now = int(time.time() * 1000)
    past, present, future = batch_of(b"x"), batch_of(b"x", timestamp=now), batch_of(b"x", timestamp=now + 60_000)
    assert client.produce(topic, present).error_code == 0
    assert client.produce(topic, past).error_code == ErrorCode.INVALID_TIMESTAMP
    assert client.produce(topic, future).error_code == ErrorCode.INVALID_TIMESTAMP
    alter_one(client, topic, [("message.timestamp.before.max.ms", SET, str(10**15))])
    assert client.produce(topic, past).error_code == 0
    assert client.produce(topic, future).error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(("codec", "fast", "small"), [("gzip", "1", "9"), ("lz4", "1", "12"), ("zstd", "-100", "22")])
def test_the_broker_recompresses_at_the_level_of_the_topic(
    client: RawClient, make_topic: MakeTopic, codec: str, fast: str, small: str
) -> None:
    values = [b'{"user": %d, "page": "/p/%d"}' % (n * 7919 % 1000, n % 50) for n in range(2000)]
    sizes = []
    for level in (fast, small):
        topic = make_topic(**{"compression.type": codec, f"compression.{codec}.level": level})
        assert client.produce(topic, batch_of(*values)).error_code == 0
        records = client.fetch(topic, 0).records
        assert [found for _, found in values_in(records)] == values
        sizes.append(len(bytes(records or b"")))
    assert sizes[1] < sizes[0] * 0.98


def test_a_topic_without_a_policy_keeps_everything(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", {"log.retention.check.interval.ms": "50"})
    with broker, RawClient(broker.port) as client:
        for topic in ("kept", "dropped"):
            create_topic(client, topic, configs={"retention_ms": "1", "cleanup_policy": "compact"})
        assert alter_one(client, "kept", [("cleanup.policy", SUBTRACT, "compact")]).error_code == 0
        assert value(client, "kept", "cleanup.policy") == ""
        assert alter_one(client, "dropped", [("cleanup.policy", APPEND, "delete")]).error_code == 0
        for topic in ("kept", "dropped"):
            assert client.produce(topic, batch_of(b"x", b"y")).error_code == 0
        until(lambda: client.list_offset("dropped", -2).offset == 2, "retention")
        assert values_in(client.fetch("kept", 0).records) == [(0, b"x"), (1, b"y")]


def test_confluent_kafka_sets_and_reads_the_keys(broker: BrokerProcess, make_topic: MakeTopic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = make_topic()
    configs = {"compression.zstd.level": "7", "leader.replication.throttled.replicas": "*", "preallocate": "true"}
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config=configs)
    for future in admin.alter_configs([resource]).values():
        future.result(10)
    (found,) = [future.result(10) for future in admin.describe_configs([resource]).values()]
    assert {key: found[key].value for key in configs} == configs


def test_kafka_python_reads_the_keys(broker: BrokerProcess, make_topic: MakeTopic) -> None:
    topic = make_topic(unclean_leader_election_enable="true")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        found: Any = admin.describe_configs([KafkaPythonResource(ConfigResourceType.TOPIC, topic)])
        assert "unclean.leader.election.enable" in str(found)
    finally:
        admin.close()
