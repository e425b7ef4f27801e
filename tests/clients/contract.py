"""What a Kafka client may expect of a broker, written once against `Peer` and run with every client.

A test class of a client inherits the groups whose operations the client has. The expectations are Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .peers.peer import CODECS, Alteration, At, Code, Peer, Place, Position, Refused, Tail, read, until
from .peers.record import Record
from .peers.stored_batches import assert_stored_with, stored_batches

TIME_MS = 1_700_000_000_000
MakeTopic = Callable[..., str]

VARIED_RECORDS = [
    Record(b"plain", timestamp_ms=TIME_MS),
    Record(b"keyed", b"key", timestamp_ms=TIME_MS + 1),
    Record(b"", b"", timestamp_ms=TIME_MS + 2),
    Record(b"\x00\xff" * 400, "schlüssel".encode(), timestamp_ms=TIME_MS + 3),
    Record(b"headed", b"key", (("trace", b"\x01\x02"), ("empty", b"")), timestamp_ms=TIME_MS + 4),
    Record(b"older than the one before", timestamp_ms=TIME_MS - 1000),
]
TOMBSTONE = Record(None, b"key", timestamp_ms=TIME_MS)


def numbered(count: int, first: int = 0) -> list[Record]:
    return [Record(b"value %d" % n, b"%d" % n, timestamp_ms=TIME_MS + 1000 * n) for n in range(first, first + count)]


class Produces:
    """Records go in under every codec and acknowledgement and come back unchanged."""

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    @pytest.mark.parametrize("codec", CODECS)
    def test_records_come_back_as_sent_and_lie_in_the_log_with_their_codec(
        self, peer: Peer, make_topic: MakeTopic, bootstrap: str, codec: str, acks: str
    ) -> None:
        if codec not in peer.codecs:
            pytest.skip(f"this client has no {codec}")
        topic = make_topic()
        records = [*VARIED_RECORDS, *numbered(20)]
        peer.produce(topic, 0, records, codec=codec, acks=acks)
        found = read(peer, topic, 0, len(records))
        assert found == records
        assert [record.offset for record in found] == list(range(len(records)))
        assert_stored_with(codec, bootstrap, topic, 0)

    def test_a_null_value_stays_null(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        peer.produce(topic, 0, [TOMBSTONE])
        assert read(peer, topic, 0, 1) == [TOMBSTONE]

    def test_partitions_are_independent_logs(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=3)
        peer.produce(topic, 2, numbered(4))
        peer.produce(topic, 0, numbered(2, first=10))
        assert read(peer, topic, 2, 4) == numbered(4)
        assert read(peer, topic, 0, 2) == numbered(2, first=10)

    def test_many_batches_keep_their_order(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        for first in range(0, 600, 200):
            peer.produce(topic, 0, numbered(200, first))
        assert read(peer, topic, 0, 600) == numbered(600)

    def test_log_append_time_replaces_the_time_of_the_producer(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(config={"message.timestamp.type": "LogAppendTime"})
        peer.produce(topic, 0, numbered(1))
        (found,) = read(peer, topic, 0, 1)
        assert found.value == b"value 0"
        assert found.timestamp_ms is not None
        assert found.timestamp_ms > TIME_MS + 10**9

    def test_producing_to_an_unknown_topic_creates_it(self, peer: Peer, new_name: str) -> None:
        peer.produce(new_name, 0, numbered(3))
        assert read(peer, new_name, 0, 3) == numbered(3)

    def test_a_record_above_max_message_bytes_is_refused(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(config={"max.message.bytes": "2000"})
        with pytest.raises(Refused) as refused:
            peer.produce(topic, 0, [Record(b"x" * 5000)])
        assert refused.value.code == Code.MESSAGE_TOO_LARGE
        peer.produce(topic, 0, [Record(b"x" * 500, timestamp_ms=TIME_MS)])
        assert read(peer, topic, 0, 1) == [Record(b"x" * 500, timestamp_ms=TIME_MS)]


class ProducesIdempotently:
    def test_an_idempotent_producer_writes_once_under_its_producer_id(
        self, peer: Peer, make_topic: MakeTopic, bootstrap: str
    ) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(50), idempotent=True)
        assert read(peer, topic, 0, 50) == numbered(50)
        batches = stored_batches(bootstrap, topic, 0)
        assert len({batch.producer_id for batch in batches}) == 1
        assert batches[0].producer_id >= 0
        assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]

    def test_each_idempotent_producer_gets_its_own_id(self, peer: Peer, make_topic: MakeTopic, bootstrap: str) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(1), idempotent=True)
        peer.produce(topic, 0, numbered(1), idempotent=True)
        first, second = stored_batches(bootstrap, topic, 0)
        assert first.producer_id != second.producer_id
        assert first.base_sequence == second.base_sequence == 0


class KeepsCompactedTopicsKeyed:
    def test_a_record_without_key_is_refused_on_a_compacted_topic(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(config={"cleanup.policy": "compact"})
        with pytest.raises(Refused) as refused:
            peer.produce(topic, 0, [Record(b"no key")], idempotent=True)
        assert refused.value.code == Code.INVALID_RECORD


class Reads:
    """Reading starts wherever it is told to."""

    @pytest.mark.parametrize(
        ("start", "first"),
        [(Place.BEGINNING, 0), (0, 0), (7, 7), (9, 9), (Tail(3), 7), (At(TIME_MS + 4000), 4), (At(TIME_MS + 4001), 5)],
        ids=str,
    )
    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_reading_starts_at_the_position(
        self, peer: Peer, make_topic: MakeTopic, codec: str, start: Position, first: int
    ) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(10), codec=codec)
        found = read(peer, topic, 0, 10 - first, start)
        assert found == numbered(10 - first, first)
        assert found[0].offset == first

    def test_a_reader_at_the_end_sees_only_what_comes_later(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(5))
        with peer.open(topic, 0, Place.END) as reader:
            peer.produce(topic, 0, numbered(2, first=5))
            assert reader.take(2) == numbered(2, first=5)

    def test_reading_goes_on_with_records_written_meanwhile(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(3))
        with peer.open(topic, 0, 0) as reader:
            assert reader.take(3) == numbered(3)
            peer.produce(topic, 0, numbered(2, first=3))
            assert reader.take(2) == numbered(2, first=3)


class LooksUpOffsets:
    @pytest.mark.parametrize(
        ("at", "offset"),
        [
            (Place.BEGINNING, 0),
            (Place.END, 10),
            (At(0), 0),
            (At(TIME_MS), 0),
            (At(TIME_MS + 1), 1),
            (At(TIME_MS + 9000), 9),
            (At(TIME_MS + 9001), None),
        ],
        ids=str,
    )
    def test_the_offset_of_a_place_or_a_time(
        self, peer: Peer, make_topic: MakeTopic, at: Place | At, offset: int | None
    ) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(6), codec="gzip")
        peer.produce(topic, 0, numbered(4, first=6))
        assert peer.offset_for(topic, 0, at) == offset

    def test_an_empty_partition_begins_and_ends_at_zero(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        assert peer.offset_for(topic, 0, Place.BEGINNING) == 0
        assert peer.offset_for(topic, 0, Place.END) == 0
        assert peer.offset_for(topic, 0, At(TIME_MS)) is None


class AdministersTopics:
    def test_a_created_topic_has_its_partitions_and_takes_records(self, peer: Peer, new_name: str) -> None:
        peer.create_topic(new_name, partitions=3)
        until(lambda: new_name in peer.topics(), "the new topic in the metadata")
        assert peer.partition_count(new_name) == 3
        peer.produce(new_name, 2, numbered(1))
        assert read(peer, new_name, 2, 1) == numbered(1)

    def test_a_deleted_topic_is_gone_and_can_be_created_anew(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=2)
        peer.produce(topic, 0, numbered(1))
        peer.delete_topic(topic)
        until(lambda: topic not in peer.topics(), "the metadata without the topic")
        peer.create_topic(topic)
        until(lambda: topic in peer.topics(), "the topic again")
        assert peer.partition_count(topic) == 1
        peer.produce(topic, 0, numbered(1, first=7))
        assert read(peer, topic, 0, 1) == numbered(1, first=7)

    def test_creating_a_topic_twice_is_refused(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        with pytest.raises(Refused) as refused:
            peer.create_topic(topic)
        assert refused.value.code == Code.TOPIC_ALREADY_EXISTS

    def test_deleting_an_unknown_topic_is_refused(self, peer: Peer, new_name: str) -> None:
        with pytest.raises(Refused) as refused:
            peer.delete_topic(new_name)
        assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("name", ["with space", "sla/sh", "x" * 250, ".."], ids=lambda name: name[:10])
    def test_an_invalid_topic_name_is_refused(self, peer: Peer, name: str) -> None:
        with pytest.raises(Refused) as refused:
            peer.create_topic(name)
        assert refused.value.code == Code.INVALID_TOPIC_EXCEPTION
        assert name not in peer.topics()

    def test_more_replicas_than_brokers_are_refused(self, peer: Peer, bootstrap: str, new_name: str) -> None:
        brokers = bootstrap.split(",")
        with pytest.raises(Refused) as refused:
            peer.create_topic(new_name, replication_factor=len(brokers) + 1)
        assert refused.value.code == Code.INVALID_REPLICATION_FACTOR
        assert new_name not in peer.topics()

    def test_a_topic_without_partitions_is_refused(self, peer: Peer, new_name: str) -> None:
        with pytest.raises(Refused) as refused:
            peer.create_topic(new_name, partitions=0)
        assert refused.value.code == Code.INVALID_PARTITIONS

    @pytest.mark.parametrize(
        ("key", "value"), [("no.such.config", "1"), ("retention.ms", "soon"), ("cleanup.policy", "burn")]
    )
    def test_a_topic_with_an_invalid_config_is_refused(self, peer: Peer, new_name: str, key: str, value: str) -> None:
        with pytest.raises(Refused) as refused:
            peer.create_topic(new_name, config={key: value})
        assert refused.value.code == Code.INVALID_CONFIG
        assert new_name not in peer.topics()

    def test_partitions_are_added_to_a_topic_in_use(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(2))
        peer.create_partitions(topic, 3)
        until(lambda: peer.partition_count(topic) == 3, "three partitions in the metadata")
        peer.produce(topic, 2, numbered(1, first=2))
        assert read(peer, topic, 2, 1) == numbered(1, first=2)
        assert read(peer, topic, 0, 2) == numbered(2)

    def test_removing_partitions_is_refused(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=3)
        with pytest.raises(Refused) as refused:
            peer.create_partitions(topic, 2)
        assert refused.value.code == Code.INVALID_PARTITIONS

    def test_adding_partitions_to_an_unknown_topic_is_refused(self, peer: Peer, new_name: str) -> None:
        with pytest.raises(Refused) as refused:
            peer.create_partitions(new_name, 2)
        assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_cluster_names_itself_its_brokers_and_a_controller_among_them(self, peer: Peer, brokers: str) -> None:
        cluster = peer.cluster()
        assert cluster.cluster_id
        assert cluster.controller_id in cluster.brokers
        assert set(brokers.split(",")) == {f"{host}:{port}" for host, port in cluster.brokers.values()}


class ValidatesTopics:
    def test_validate_only_checks_and_creates_nothing(self, peer: Peer, new_name: str) -> None:
        peer.create_topic(new_name, validate_only=True)
        with pytest.raises(Refused) as refused:
            peer.create_topic(new_name, config={"no.such.config": "1"}, validate_only=True)
        assert refused.value.code == Code.INVALID_CONFIG
        assert new_name not in peer.topics()


class DeletesRecords:
    def test_deleted_records_are_gone_and_the_rest_keeps_its_offsets(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(10))
        peer.delete_records(topic, 0, before=6)
        found = read(peer, topic, 0, 4, Place.BEGINNING)
        assert found == numbered(4, first=6)
        assert found[0].offset == 6

    def test_deleting_records_beyond_the_end_is_refused(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        peer.produce(topic, 0, numbered(2))
        with pytest.raises(Refused) as refused:
            peer.delete_records(topic, 0, before=3)
        assert refused.value.code == Code.OFFSET_OUT_OF_RANGE


class DescribesConfigs:
    def test_the_configs_of_a_topic_are_the_defaults_and_what_was_set(
        self, peer: Peer, bootstrap: str, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(config={"retention.ms": "3600000", "cleanup.policy": "compact,delete"})
        configs = peer.configs(topic)
        assert (configs["retention.ms"].value, configs["retention.ms"].is_default) == ("3600000", False)
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].is_default) == ("compact,delete", False)
        assert (configs["segment.bytes"].value, configs["segment.bytes"].is_default) == ("1073741824", True)
        assert (configs["max.message.bytes"].value, configs["max.message.bytes"].is_default) == ("1048588", True)
        in_sync = configs["min.insync.replicas"]  # the brokers of a cluster have 2 in their settings
        assert (in_sync.value, in_sync.is_default) == (("2", False) if "," in bootstrap else ("1", True))


class ReplacesConfigs:
    """AlterConfigs, the older request: what it does not name goes back to its default."""

    def test_replacing_configs_resets_those_not_named(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(config={"retention.ms": "3600000"})
        peer.replace_configs(topic, {"max.message.bytes": "5000"})
        until(lambda: peer.configs(topic)["max.message.bytes"].value == "5000", "the new value")
        assert peer.configs(topic)["retention.ms"].is_default

    def test_replacing_with_an_invalid_config_is_refused(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(config={"retention.ms": "3600000"})
        with pytest.raises(Refused) as refused:
            peer.replace_configs(topic, {"retention.ms": "soon"})
        assert refused.value.code == Code.INVALID_CONFIG
        assert peer.configs(topic)["retention.ms"].value == "3600000"


class AltersConfigs:
    """IncrementalAlterConfigs."""

    def test_a_config_is_set_and_deleted(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(config={"retention.ms": "3600000"})
        peer.alter_config(topic, Alteration.SET, "max.message.bytes", "5000")
        until(lambda: peer.configs(topic)["max.message.bytes"].value == "5000", "the new value")
        assert peer.configs(topic)["retention.ms"].value == "3600000"
        peer.alter_config(topic, Alteration.DELETE, "max.message.bytes", None)
        until(lambda: peer.configs(topic)["max.message.bytes"].is_default, "the default value")

    def test_list_configs_are_appended_to_and_subtracted_from(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic(config={"cleanup.policy": "delete"})
        peer.alter_config(topic, Alteration.APPEND, "cleanup.policy", "compact")
        until(lambda: peer.configs(topic)["cleanup.policy"].value == "delete,compact", "both policies")
        peer.alter_config(topic, Alteration.SUBTRACT, "cleanup.policy", "delete")
        until(lambda: peer.configs(topic)["cleanup.policy"].value == "compact", "the remaining policy")

    @pytest.mark.parametrize(
        ("operation", "key", "value"),
        [
            (Alteration.SET, "no.such.config", "1"),
            (Alteration.SET, "retention.ms", "soon"),
            (Alteration.APPEND, "retention.ms", "1"),
        ],
    )
    def test_an_invalid_alteration_is_refused(
        self, peer: Peer, make_topic: MakeTopic, operation: Alteration, key: str, value: str
    ) -> None:
        topic = make_topic()
        with pytest.raises(Refused) as refused:
            peer.alter_config(topic, operation, key, value)
        assert refused.value.code == Code.INVALID_CONFIG

    def test_altering_the_configs_of_an_unknown_topic_is_refused(self, peer: Peer, new_name: str) -> None:
        with pytest.raises(Refused) as refused:
            peer.alter_config(new_name, Alteration.SET, "retention.ms", "1")
        assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_an_altered_config_takes_effect(self, peer: Peer, make_topic: MakeTopic) -> None:
        topic = make_topic()
        peer.alter_config(topic, Alteration.SET, "max.message.bytes", "1000")
        until(lambda: peer.configs(topic)["max.message.bytes"].value == "1000", "the new value")
        with pytest.raises(Refused) as refused:
            peer.produce(topic, 0, [Record(b"x" * 2000)])
        assert refused.value.code == Code.MESSAGE_TOO_LARGE
