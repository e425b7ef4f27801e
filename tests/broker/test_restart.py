"""Start, stop and restart: the state a broker keeps, the directories it refuses, and how quickly it stops."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from skylog.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.cli.commands import run_skylog
from tests.patience import patience

from .conftest import create_topic
from .process import BrokerProcess, BrokerThread
from .raw import ClosedByBrokerError, RawClient, batch_of, fetch_request, values_in


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_everything_that_was_acknowledged_survives(tmp_path: Path, how: str) -> None:
    broker = BrokerProcess(tmp_path / "data")
    epochs = []
    with broker:
        with RawClient(broker.port) as client:
            create_topic(client, "one", 3, {"retention_ms": "777777777"})
            create_topic(client, "two")
            for n in range(5):
                client.produce("one", batch_of(b"%d" % n), partition=2)
            before = client.metadata()
        for _ in range(3):
            getattr(broker, how)()
            broker.start()
            with RawClient(broker.port) as client:
                after = client.metadata()
                assert after.cluster_id == before.cluster_id
                assert {(t.name, t.topic_id, len(t.partitions)) for t in after.topics} == {
                    (t.name, t.topic_id, len(t.partitions)) for t in before.topics
                }
                epochs.append(client.topic("one").partitions[2].leader_epoch)
                resource = DescribeConfigsResource(
                    resource_type=2, resource_name="one", configuration_keys=["retention.ms"]
                )
                (result,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
                assert result.configs[0].value == "777777777"
                assert values_in(client.fetch("one", 0, partition=2).records) == [(n, b"%d" % n) for n in range(5)]
    assert epochs == ([1, 2, 3] if how == "kill" else [0, 0, 0])
    assert not broker.tracebacks()


def run_serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_skylog("serve", "--no-console", "--port", "0", *arguments)


def test_two_brokers_in_one_directory_are_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        second = run_serve("--data-dir", str(broker.data_dir))
        assert second.returncode == 1
        assert "in use by another broker" in second.stderr
        assert str(broker.data_dir) in second.stderr.replace("\n", "")
        assert "Traceback" not in second.stderr
        with RawClient(broker.port) as client:
            assert create_topic(client, "still-served")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        second = run_serve("--data-dir", str(tmp_path / "other"), "--port", str(broker.port))
        assert second.returncode == 1
        assert str(broker.port) in second.stderr
        assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("num.partition=3", "num.partitions"),
        ("log.retention.m=3", "log.retention.ms"),
        ("retention.ms=3", "log.retention.ms"),
        ("num.partitions=many", "num.partitions=many"),
    ],
)
def test_a_setting_that_is_wrong_is_refused_with_the_right_one(tmp_path: Path, setting: str, hint: str) -> None:
    result = run_serve("--data-dir", str(tmp_path / "data"), "--set", setting)
    assert result.returncode == 1
    assert hint in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "data").exists()


def test_sigterm_loses_nothing_acknowledged_and_does_not_wait_for_parked_requests(tmp_path: Path) -> None:
    """Active producers and fetches that are parked for long must not keep the broker from stopping."""
    broker = BrokerProcess(tmp_path / "data")
    acknowledged: list[list[int]] = [[] for _ in range(4)]

    def produce_until_closed(partition: int) -> None:
        number = 0
        try:
            with RawClient(broker.port) as client:
                while True:
                    number += 1
                    answer = client.produce("t", batch_of(b"%d" % number), partition=partition)
                    if answer.error_code == 0:
                        acknowledged[partition].append(number)
                        if number == 50:
                            ready.release()
        except (ClosedByBrokerError, OSError):
            return

    ready = threading.Semaphore(0)
    with broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t", 4, {"flush_messages": "1"})
            create_topic(client, "empty")
            readers = [RawClient(broker.port) for _ in range(10)]
            for reader in readers:
                reader.send(fetch_request("empty", 0, max_wait_ms=60_000), 12)
            threads = [threading.Thread(target=produce_until_closed, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for _ in threads:
                assert ready.acquire(timeout=30)
            seconds = broker.stop()
            for thread in threads:
                thread.join(30)
            for reader in readers:
                reader.close()
        assert seconds < patience(3)
        broker.start()
        with RawClient(broker.port) as client:
            for partition in range(4):
                found: list[int] = []
                while len(found) < client.end_offset("t", partition):
                    found += [
                        int(value or b"")
                        for _, value in values_in(client.fetch("t", len(found), partition=partition).records)
                    ]
                assert found[: len(acknowledged[partition])] == acknowledged[partition]
                assert len(found) <= len(acknowledged[partition]) + 1
    assert not broker.tracebacks()


def test_logs_without_metadata_are_not_taken_for_those_of_deleted_topics(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        create_topic(client, "t")
        client.produce("t", batch_of(b"a"))
    (data_dir / "metadata.json").rename(tmp_path / "kept")
    refused = run_serve("--data-dir", str(data_dir))
    assert refused.returncode != 0
    assert "restore metadata.json" in refused.stderr
    (tmp_path / "kept").rename(data_dir / "metadata.json")
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        assert values_in(client.fetch("t", 0).records) == [(0, b"a")]


def test_an_empty_log_without_metadata_is_what_a_crash_leaves_of_the_first_topic(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        create_topic(client, "t")
    (data_dir / "metadata.json").unlink()
    with BrokerThread(data_dir) as thread, RawClient(thread.port) as client:
        assert not client.metadata().topics
        create_topic(client, "t")
