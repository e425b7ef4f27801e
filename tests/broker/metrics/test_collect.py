"""The broker's metrics, compared with the requests sent to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.errors import ErrorCode
from skylog.metric import from_document, to_document
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from skylog.testing import DiskFaults
from tests.broker.conftest import create_topic
from tests.broker.process import BrokerThread, until
from tests.broker.raw import RawClient, batch_of, fetch_request, produce_request

from .reading import collected, value

TOPICS = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics"


@pytest.fixture
def disk() -> DiskFaults:
    return DiskFaults()


@pytest.fixture
def thread(tmp_path: Path, disk: DiskFaults) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread:
        yield thread


@pytest.fixture
def client(thread: BrokerThread) -> Iterator[RawClient]:
    with RawClient(thread.port) as client:
        yield client


def test_messages_and_bytes_are_counted_however_they_come(thread: BrokerThread, client: RawClient) -> None:
    """One by one, several in one read, and with acks=0, which never use the fast path."""
    create_topic(client, "t", 2)
    one, three = batch_of(b"x"), batch_of(b"a", b"b", b"c")
    client.produce("t", one)
    client.produce("t", three, partition=1)
    client.send_bytes(b"".join(client.encode(produce_request("t", one), 9) for _ in range(5)))
    for _ in range(5):
        client.receive()
    client.send(produce_request("t", one, acks=0), 9)
    assert client.end_offset("t") == 7
    metrics = collected(thread)
    assert value(metrics, f"{TOPICS}_messagesin_total", topic="t") == 10
    assert value(metrics, f"{TOPICS}_bytesin_total", topic="t") == 7 * len(one) + len(three)
    assert value(metrics, f"{REQUESTS}_requests_total", request="Produce", version="9") == 8
    assert value(metrics, f"{REQUESTS}_totaltimems", "_count", request="Produce") == 8
    assert value(metrics, "kafka_log_log_logendoffset", topic="t", partition="0") == 7
    assert value(metrics, "kafka_log_log_size", topic="t", partition="1") == len(three)


def test_a_batch_that_is_sent_again_counts_once(thread: BrokerThread, client: RawClient) -> None:
    create_topic(client, "t")
    batch = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    client.produce("t", batch)
    client.produce("t", batch)
    metrics = collected(thread)
    assert value(metrics, f"{TOPICS}_messagesin_total", topic="t") == 1
    assert value(metrics, f"{TOPICS}_bytesin_total", topic="t") == len(batch)


def test_counts_begin_at_the_start_and_not_at_the_first_offset(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "other") as thread, RawClient(thread.port) as client:
        create_topic(client, "t")
        client.produce("t", batch_of(b"x"))
    with BrokerThread(tmp_path / "other") as thread:
        metrics = collected(thread)
    assert value(metrics, f"{TOPICS}_messagesin_total", topic="t") == 0
    assert value(metrics, "kafka_log_log_logendoffset", topic="t") == 1


def test_bytes_out_count_responses_and_not_reads(thread: BrokerThread, client: RawClient) -> None:
    """A fetch that waits for more reads twice and answers once."""
    create_topic(client, "t")
    batch = batch_of(b"x")
    client.produce("t", batch)
    client.send(fetch_request("t", 0, min_bytes=len(batch) + 1, max_wait_ms=30_000), 12)
    with RawClient(thread.port) as other:
        until(lambda: is_waiting(thread), "the fetch to wait")
        other.produce("t", batch)
    assert len(client.receive().responses[0].partitions[0].records) == 2 * len(batch)
    assert value(collected(thread), f"{TOPICS}_bytesout_total", topic="t") == 2 * len(batch)


def is_waiting(thread: BrokerThread) -> bool:
    requests = thread.look(lambda broker: dict(broker.requests))
    return any(times.until_parked.count for times in requests.values())


def test_the_time_of_a_fetch_has_the_waiting_in_it_and_its_local_time_has_not(
    thread: BrokerThread, client: RawClient
) -> None:
    create_topic(client, "t")
    client.fetch("t", 0, max_wait_ms=200)
    metrics = collected(thread)
    assert value(metrics, f"{REQUESTS}_totaltimems", "_sum", request="Fetch") >= 190
    assert value(metrics, f"{REQUESTS}_localtimems", "_sum", request="Fetch") < 200
    for name in ("totaltimems", "localtimems"):
        assert value(metrics, f"{REQUESTS}_{name}", "_count", request="Fetch") == 1


def test_errors_are_counted_by_request_and_name(thread: BrokerThread, client: RawClient) -> None:
    create_topic(client, "t")
    assert client.produce("t", batch_of(b"x"), partition=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.fetch("t", 99).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    metrics = collected(thread)
    name = f"{REQUESTS}_errors_total"
    assert value(metrics, name, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert value(metrics, name, request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1
    assert value(metrics, f"{TOPICS}_failedproducerequests_total") == 1
    assert value(metrics, f"{TOPICS}_failedfetchrequests_total") == 1


def test_the_lag_of_a_group_without_members_is_seen(thread: BrokerThread, client: RawClient) -> None:
    from skylog.protocol.find_coordinator import FindCoordinatorRequest

    create_topic(client, "t")
    client.produce("t", batch_of(b"a", b"b", b"c"))
    client.ask(FindCoordinatorRequest(key="g"), 1)
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", partitions=[row])
    client.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 7)
    metrics = collected(thread)
    labels = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert value(metrics, "kafka_consumergroup_current_offset", **labels) == 1
    assert value(metrics, "kafka_consumergroup_lag", **labels) == 2
    assert value(metrics, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert value(metrics, "kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 1


def test_fsyncs_are_counted_and_a_log_whose_fsync_fails_is_offline(
    thread: BrokerThread, client: RawClient, disk: DiskFaults
) -> None:
    create_topic(client, "t", 1, {"flush_messages": "1"})
    client.produce("t", batch_of(b"x"))
    flushes = "kafka_log_logflushstats_logflushrateandtimems"
    assert value(collected(thread), flushes, "_count") == 1
    assert value(collected(thread), "skylog_offline_logs") == 0
    disk.failing.add("sync")
    assert client.produce("t", batch_of(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    metrics = collected(thread)
    disk.failing.clear()
    assert value(metrics, "skylog_offline_logs") == 1
    assert value(metrics, "kafka_server_replicamanager_offlinereplicacount") == 1
    assert value(metrics, f"{REQUESTS}_errors_total", request="Produce", error="KAFKA_STORAGE_ERROR") == 1


def test_failures_of_background_jobs_are_counted_by_job(thread: BrokerThread) -> None:
    for job in ("housekeeping", "compactor", "coordinator"):
        assert value(collected(thread), "skylog_background_failures_total", job=job) == 0

    def fail_once(broker: object) -> None:
        thread.broker.housekeeping.discard(Path("/proc/version"))  # which cannot be deleted

    thread.look(fail_once)
    until(
        lambda: value(collected(thread), "skylog_background_failures_total", job="housekeeping") == 1,
        "the failure to be counted",
    )


def test_there_are_metrics_of_connections_and_the_process(thread: BrokerThread, client: RawClient) -> None:
    create_topic(client, "t", 3)
    metrics = collected(thread)
    sockets = "kafka_server_socketservermetrics"
    assert value(metrics, f"{sockets}_connection_count") == 1
    assert value(metrics, f"{sockets}_connection_creation_total") == 1
    assert value(metrics, "kafka_server_replicamanager_partitioncount") == 3
    assert value(metrics, "kafka_server_replicamanager_leadercount") == 3
    assert value(metrics, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(metrics, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(metrics, "process_resident_memory_bytes") > 1 << 20
    assert value(metrics, "process_open_fds") > 3
    assert 0 < value(metrics, "skylog_disk_free_bytes") < value(metrics, "skylog_disk_total_bytes")


def test_names_are_unique_and_match_their_kind(thread: BrokerThread, client: RawClient) -> None:
    create_topic(client, "t")
    client.produce("t", batch_of(b"x"))
    metrics = collected(thread)
    names = [metric.name for metric in metrics]
    assert len(set(names)) == len(names)
    for metric in metrics:
        assert metric.name.endswith("_total") is (metric.kind == "counter"), metric.name
        assert {sample.suffix for sample in metric.samples} <= (
            {"_bucket", "_sum", "_count"} if metric.kind == "histogram" else {""}
        )
        labelled = [(sample.suffix, *sorted(sample.labels.items())) for sample in metric.samples]
        assert len(set(labelled)) == len(labelled), metric.name
    assert from_document(to_document(metrics)) == metrics


def test_bytes_in_do_not_shrink_when_retention_drops_segments(thread: BrokerThread, client: RawClient) -> None:
    create_topic(client, "t", 1, {"segment_bytes": "1000", "retention_bytes": "1000"})
    batch = batch_of(b"x" * 400)
    for _ in range(10):
        client.produce("t", batch)
    thread.look(lambda broker: broker.housekeeping.drop_expired())
    metrics = collected(thread)
    assert value(metrics, "kafka_log_log_size", topic="t") < 10 * len(batch)
    assert value(metrics, f"{TOPICS}_bytesin_total", topic="t") == 10 * len(batch)


def test_bytes_in_do_not_shrink_when_compaction_drops_records(thread: BrokerThread, client: RawClient) -> None:
    configs = {"cleanup_policy": "compact", "segment_bytes": "1000", "min_cleanable_dirty_ratio": "0.01"}
    create_topic(client, "t", 1, configs)
    batch = batch_of(b"x" * 400)
    for _ in range(10):
        client.produce("t", batch)
    thread.look(lambda broker: broker.housekeeping.flush_due())
    until(lambda: bool(thread.run(thread.broker.compactor.clean_one())), "a log to be cleaned")
    metrics = collected(thread)
    assert value(metrics, "skylog_cleaner_runs_total") == 1
    assert value(metrics, "kafka_log_log_size", topic="t") < 10 * len(batch)
    assert value(metrics, f"{TOPICS}_bytesin_total", topic="t") == 10 * len(batch)
