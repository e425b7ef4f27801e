"""kill -9 under load: every acknowledged message is there once, in order; a torn log is cut, never served.

The log is in the page cache when it is acknowledged, which outlives the process: SIGKILL loses nothing. What is cut
off a file by hand is gone by definition; there it only holds that the damage is found, the log ends at the last
sound batch, and everything below is intact.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.proof import proof
from tests.seeds import seed

from ..broker.conftest import create_topic
from ..broker.process import BrokerProcess, until
from ..broker.raw import RawClient, batch_of, values_in


class Writer:
    """An idempotent librdkafka producer that writes numbers to partitions until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.failures: list[Any] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, topic, partitions))
        self._thread.start()

    def _run(self, bootstrap: str, topic: str, partitions: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "delivery.timeout.ms": 60_000,
                "log_level": 0,
                "broker.address.family": "v4",
            }
        )

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                number = int(message.value().split()[0])
                self.acknowledged[message.partition()].append((message.offset(), number))

        number = 0
        while not self._stopping.is_set():
            producer.produce(topic, b"%d " % number + b"." * 80, partition=number % partitions, on_delivery=delivered)
            number += 1
            if number % 20 == 0:
                producer.poll(0.002)
            if len(producer) > 2000:
                producer.poll(0.05)
        if producer.flush(60):
            self.failures.append("not everything was delivered")

    @property
    def count(self) -> int:
        return sum(len(rows) for rows in self.acknowledged)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(90)
        assert not self._thread.is_alive()


def read_all(client: RawClient, topic: str, partition: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    start = client.list_offset(topic, -2, partition=partition).offset
    end = client.end_offset(topic, partition)
    while (found[-1][0] + 1 if found else start) < end:
        data = client.fetch(topic, found[-1][0] + 1 if found else start, partition=partition).records
        rows = values_in(data)
        assert rows
        found += [(offset, int((value or b"").split()[0])) for offset, value in rows]
    return found


def assert_exactly_once_in_order(writer: Writer, found: list[tuple[int, int]], partition: int) -> None:
    offsets = [offset for offset, _ in found]
    numbers = [number for _, number in found]
    assert offsets == list(range(len(found))), "no hole"
    assert numbers == sorted(set(numbers)), "each once, in order"
    assert set(writer.acknowledged[partition]) == set(found), "everything acknowledged, at the offset it was told"


@pytest.mark.parametrize(
    ("kills", "partitions", "settings"),
    [
        (proof(20, 3), 1, {}),
        (proof(100, 6), 5, {"log.segment.bytes": "20000", "log.index.interval.bytes": "500"}),
        (proof(20, 3), 3, {"log.flush.interval.messages": "1", "log.flush.offset.checkpoint.interval.ms": "50"}),
    ],
    ids=["one partition", "small segments", "flushed"],
)
def test_kills_under_load_lose_and_repeat_nothing(
    tmp_path: Path, kills: int, partitions: int, settings: dict[str, str]
) -> None:
    broker = BrokerProcess(tmp_path / "data", {**settings, "num.partitions": str(partitions)})
    epochs = []
    with broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t", partitions)
        writer = Writer(broker.bootstrap, "t", partitions)
        for turn in range(kills):
            goal = writer.count + 30 + 40 * (turn % 4)
            until(lambda: writer.count >= goal, f"progress after kill {turn}", 30)  # noqa: B023  # used in this turn
            broker.kill()
            broker.start()
            with RawClient(broker.port) as client:
                epochs.append(client.topic("t").partitions[0].leader_epoch)
        writer.stop()
        assert not writer.failures, writer.failures[:3]
        with RawClient(broker.port) as client:
            for partition in range(partitions):
                assert_exactly_once_in_order(writer, read_all(client, "t", partition), partition)
    assert epochs == list(range(1, kills + 1))
    assert not broker.tracebacks()


def last_segment(broker: BrokerProcess) -> Path:
    return max((broker.data_dir / "t-0").glob("*.log"))


@pytest.mark.parametrize("number", range(proof(20, 1)))
@pytest.mark.parametrize("damage", ["cut", "garbage behind", "bit flip"])
def test_a_damaged_tail_is_cut_at_the_last_sound_batch(tmp_path: Path, damage: str, number: int) -> None:
    rng = random.Random(f"{seed()}/{number}")
    broker = BrokerProcess(tmp_path / "data", {"log.segment.bytes": "5000"})
    size = len(batch_of(b"%06d" % 0))
    with broker:
        count = 60
        with RawClient(broker.port) as client:
            create_topic(client, "t")
            for n in range(count):
                client.produce("t", batch_of(b"%06d" % n))
        for _ in range(3):
            broker.kill()
            file = last_segment(broker)
            data = bytearray(file.read_bytes())
            base = int(file.stem)
            if damage == "cut":
                at = rng.randrange(len(data)) if data else 0
                file.write_bytes(data[:at])
                count = base + at // size
            elif damage == "garbage behind":
                file.write_bytes(data + rng.randbytes(rng.randint(1, 200)))
            elif data:
                at = rng.randrange(len(data))
                if at % size >= 16:  # offset and epoch lie outside the CRC
                    data[at] ^= 1 << rng.randrange(8)
                    file.write_bytes(data)
                    count = base + at // size
            broker.start()
            with RawClient(broker.port) as client:
                assert client.end_offset("t") == count
                assert read_all(client, "t", 0) == [(n, n) for n in range(count)]
                assert client.fetch("t", count + 1).error_code != 0
                assert client.produce("t", batch_of(b"%06d" % count)).base_offset == count
                count += 1
    assert not broker.tracebacks()


def test_a_broker_that_is_stopped_for_a_while_goes_on_as_if_nothing_were(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t")
        writer = Writer(broker.bootstrap, "t", 1)
        for _ in range(3):
            goal = writer.count + 100
            until(lambda: writer.count >= goal, "progress")  # noqa: B023  # used in this turn
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(0.3)  # the fault itself: for this long the broker is not there
            os.kill(broker.pid, signal.SIGCONT)
        writer.stop()
        assert not writer.failures
        with RawClient(broker.port) as client:
            assert_exactly_once_in_order(writer, read_all(client, "t", 0), 0)
