"""The broker's tier: counts from the headers in its logs, reported so that counting again is harmless.

`python -m tests.audit.test_stored_tier DIRECTORY PORT` is a broker whose tier reports all the time.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest
import uvloop

from skylog.audit import AUDIT_TOPIC, Count, Report, StoredTier, Tier
from skylog.audit.batch_headers import LARGE_BATCH_BYTES, count_batches
from skylog.audit.counts import WindowCounts
from skylog.audit.stored_checkpoint import CHECKPOINT
from skylog.audit.stored_progress import REMEMBERED_STARTS
from skylog.broker import standalone_broker
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.protocol.delete_topics import DeleteTopicsRequest
from skylog.records import Codec, InvalidBatchError, Record, build_batch, iterate_batches, read_records
from skylog.storage import FileSlice
from skylog.storage.files import LogFile
from tests.broker.conftest import create_topic
from tests.broker.process import BrokerProcess, BrokerThread, until
from tests.broker.raw import RawClient
from tests.seeds import seed
from tests.storage.logs import Home, a_batch
from tests.transactions.client import TransactionClient

MINUTE_MS = 60_000
T = 28_000_000 * MINUTE_MS
RECORD_COUNT_AT = 57


class AuditedBroker(BrokerThread):
    """A broker with a tier that reports on request, and when it stops."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.begin_tier()
        self.client = RawClient(self.port)
        return self

    def begin_tier(self, interval_s: float = 3600) -> None:
        """Start a new tier. A running one ends as if it had been killed."""
        self.look(lambda _: [task.cancel() for task in asyncio.all_tasks() if "StoredTier" in repr(task.get_coro())])
        self.tier = StoredTier(self.broker, delay_s=interval_s, interval_s=interval_s)
        self.look(lambda _: self.tier.start())

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.run(self.tier.stop())
        super().__exit__()

    def report(self) -> list[Report]:
        """Run the tier once; return all reports."""
        self.run(self.tier.report())
        return audit_log(self.client)

    def produce(self, topic: str, *times_ms: int, codec: Codec = Codec.NONE, partition: int = 0) -> None:
        batch = build_batch([Record(value=b"x" * 50, timestamp=time_ms) for time_ms in times_ms], codec=codec)
        assert self.client.produce(topic, batch, partition=partition).error_code == 0


def audit_log(client: RawClient) -> list[Report]:
    reports: list[Report] = []
    offset, end_offset = 0, client.end_offset(AUDIT_TOPIC)
    while offset < end_offset:
        data = client.fetch(AUDIT_TOPIC, offset).records
        assert data
        for position, header in iterate_batches(data):
            batch = data[position : position + header.size_bytes]
            reports += [Report.decode(value) for value in values_of(batch) if value.startswith(b"{")]
            offset = header.end_offset
    return reports


def values_of(batch: bytes | bytearray | memoryview) -> list[bytes]:
    return [record.value or b"" for record in read_records(batch)]


def in_force(reports: Sequence[Report]) -> list[Report]:
    """Reports that are not replaced by a later one of the same partition that starts at or before their start."""
    kept: list[Report] = []
    for new in reports:
        assert new.start_offset is not None
        place = (new.topic, new.partition)
        kept = [
            old for old in kept if (old.topic, old.partition) != place or (old.start_offset or 0) < new.start_offset
        ]
        kept.append(new)
    return kept


def totals(reports: Sequence[Report]) -> Counter[tuple[str, int, int]]:
    """Messages by topic and time range, of the reports in force."""
    found: Counter[tuple[str, int, int]] = Counter()
    for report in in_force(reports):
        for row in report.counts:
            found[report.topic, row.start_ms, row.end_ms] += row.messages
    return found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AuditedBroker]:
    with AuditedBroker(tmp_path / "data") as one:
        create_topic(one.client, "clicks", 2)
        yield one
        assert one.tier.failures == 0


def begin_audit(broker: AuditedBroker) -> None:
    create_topic(broker.client, AUDIT_TOPIC)


# -- counting by headers


def test_a_batch_is_counted_for_its_window_or_for_the_span_that_it_covers(broker: AuditedBroker) -> None:
    begin_audit(broker)
    broker.produce("clicks", T, T + 1, T + 59_999)
    broker.produce("clicks", T + 59_999, T + 60_000)
    broker.produce("clicks", T + 60_000)
    (report,) = broker.report()
    assert [(row.start_ms - T, row.end_ms - T, row.messages) for row in report.counts] == [
        (0, MINUTE_MS, 3),
        (0, 2 * MINUTE_MS, 2),
        (MINUTE_MS, 2 * MINUTE_MS, 1),
    ]
    assert (report.tier, report.source, report.topic, report.partition) == (Tier.STORED, "broker-1", "clicks", 0)
    assert (report.start_offset, report.end_offset) == (0, 6)
    log = broker.look(lambda inside: inside.replicas.leader("clicks", 0).log)
    assert sum(row.size_bytes for row in report.counts) == log.size_bytes


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_counted_unopened(broker: AuditedBroker, codec: Codec) -> None:
    begin_audit(broker)
    broker.produce("clicks", *[T] * 500, codec=codec)
    assert totals(broker.report()) == {("clicks", T, T + MINUTE_MS): 500}


def test_a_topic_with_append_time_is_counted_by_the_time_of_the_append(broker: AuditedBroker) -> None:
    begin_audit(broker)
    create_topic(broker.client, "stamped", 1, {"message_timestamp_type": "LogAppendTime"})
    broker.produce("stamped", T, T + 5 * MINUTE_MS)
    (report,) = broker.report()
    (row,) = report.counts
    assert row.messages == 2
    assert row.end_ms - row.start_ms == MINUTE_MS
    assert 0 <= report.reported_at_ms - row.start_ms <= 2 * MINUTE_MS


def test_internal_topics_and_the_audit_itself_are_not_counted(broker: AuditedBroker) -> None:
    begin_audit(broker)
    create_topic(broker.client, "__own")
    broker.produce("__own", T)
    broker.produce("clicks", T)
    broker.report()
    assert {report.topic for report in broker.report()} == {"clicks"}


def count(home: Home, start_offset: int, end_offset: int) -> tuple[int, list[Count]]:
    log = home.open()
    part = log.read(start_offset, 1 << 30)
    assert part is not None
    counts = WindowCounts(MINUTE_MS)
    return count_batches(part, counts, start_offset, end_offset), counts.counts()


def test_large_and_small_batches_are_all_found(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open()
    dice = random.Random(seed())
    sizes = [dice.choice([10, 300, LARGE_BATCH_BYTES, 5 * LARGE_BATCH_BYTES]) for _ in range(600)]
    for size_bytes in sizes:
        home.append(log, a_batch(3, size_bytes, T))
    end_offset, (row,) = count(home, 0, 1800)
    assert (end_offset, row.messages, row.size_bytes) == (1800, 1800, log.size_bytes)


def test_control_batches_are_not_messages(tmp_path: Path) -> None:
    marker = build_batch([Record(timestamp=T)], control=True, producer_id=1, producer_epoch=0, base_offset=2)
    data = a_batch(2, timestamp=T) + marker + build_batch([Record(timestamp=T)], base_offset=3)
    path = tmp_path / "log"
    path.write_bytes(data)
    counts = WindowCounts(MINUTE_MS)
    assert count_batches(FileSlice(LogFile(path), 0, len(data)), counts, 0, 4) == 4
    assert sum(row.messages for row in counts.counts()) == 3


def test_only_committed_messages_count_and_only_up_to_the_first_open_transaction(broker: AuditedBroker) -> None:
    begin_audit(broker)
    clicks = TopicPartition("clicks", 0)
    with TransactionClient(broker.port) as client:
        client.find()
        for number, commits in enumerate((True, False, False, True)):
            producer = client.init()
            assert client.add(producer, clicks) == [ErrorCode.NONE]
            assert client.produce_in(producer, "clicks", b"a", b"b") is ErrorCode.NONE
            broker.produce("clicks", T)  # inside the transaction of another producer
            assert client.produce_in(producer, "clicks", b"c", sequence=2) is ErrorCode.NONE
            before = broker.client.end_offset("clicks")
            stored = [report for report in broker.report() if report.topic == "clicks"]
            assert sum(row.messages for report in stored for row in report.counts) == [0, 4, 5, 6][number]
            assert max((report.end_offset or 0 for report in stored), default=0) == before - 4
            assert client.end(producer, commits) is ErrorCode.NONE
            client.wait_for("CompleteCommit" if commits else "CompleteAbort")
        stored = [report for report in broker.report() if report.topic == "clicks"]
    assert sum(row.messages for report in stored for row in report.counts) == 4 + 2 * 3
    assert [report.start_offset for report in stored] == [0, 5, 10, 15]
    assert stored[-1].end_offset == 20


def test_counting_ends_before_a_batch_that_reaches_beyond_the_end_and_begins_inside_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open()
    for _ in range(3):
        home.append(log, a_batch(10, timestamp=T))
    end_offset, (row,) = count(home, 4, 29)
    assert (end_offset, row.messages) == (20, 16)


# -- reports


def test_without_an_audit_topic_nothing_is_done_and_with_it_all_that_is_stored_is_counted(
    broker: AuditedBroker,
) -> None:
    broker.produce("clicks", T)
    broker.run(broker.tier.report())
    assert not (broker.broker.log_dir.path / CHECKPOINT).exists()
    begin_audit(broker)
    broker.produce("clicks", T, partition=1)
    assert totals(broker.report()) == {("clicks", T, T + MINUTE_MS): 2}


def test_a_partition_is_reported_only_where_it_has_grown_and_from_where_it_ended(broker: AuditedBroker) -> None:
    begin_audit(broker)
    broker.produce("clicks", T, T)
    broker.report()
    broker.report()
    broker.produce("clicks", T)
    broker.produce("clicks", T, partition=1)
    ranges = [(report.partition, report.start_offset, report.end_offset) for report in broker.report()]
    assert ranges == [(0, 0, 2), (0, 2, 3), (1, 0, 1)]


def test_a_report_is_split_where_it_has_too_many_windows(broker: AuditedBroker) -> None:
    begin_audit(broker)
    times = range(T, T + 4000 * MINUTE_MS, MINUTE_MS)
    log = broker.look(lambda inside: inside.replicas.leader("clicks", 0))

    def fill(_: object) -> None:
        for time_ms in times:
            log.append(memoryview(a_batch(1, 1000, time_ms)), T, 1)

    broker.look(fill)
    reports = broker.report()
    assert len(reports) > 1
    assert totals(reports) == {("clicks", time_ms, time_ms + MINUTE_MS): 1 for time_ms in times}


def test_what_is_left_is_reported_at_a_clean_stop_and_counting_goes_on_after_it(tmp_path: Path) -> None:
    with AuditedBroker(tmp_path) as broker:
        create_topic(broker.client, "clicks")
        begin_audit(broker)
        broker.produce("clicks", T)
    with AuditedBroker(tmp_path) as broker:
        (report,) = audit_log(broker.client)
        assert (report.start_offset, report.end_offset) == (0, 1)
        broker.produce("clicks", T)
        assert [(one.start_offset, one.end_offset) for one in broker.report()] == [(0, 1), (1, 2)]


def test_an_old_checkpoint_is_no_reason_to_count_again(broker: AuditedBroker) -> None:
    begin_audit(broker)
    broker.produce("clicks", T)
    broker.report()
    checkpoint = broker.broker.log_dir.path / CHECKPOINT
    before = checkpoint.read_bytes()
    broker.produce("clicks", T)
    broker.report()
    checkpoint.write_bytes(before)
    broker.begin_tier()
    broker.produce("clicks", T)
    assert [(one.start_offset, one.end_offset) for one in broker.report()] == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version":2,"audit_topic_id":"x","partitions":[]}', b"[1]"])
def test_without_a_readable_checkpoint_the_audit_topic_says_where_to_continue(tmp_path: Path, content: bytes) -> None:
    with AuditedBroker(tmp_path) as broker:
        create_topic(broker.client, "clicks")
        begin_audit(broker)
        for _ in range(3):
            broker.produce("clicks", T)
            broker.report()
    (tmp_path / CHECKPOINT).write_bytes(content)
    with AuditedBroker(tmp_path) as broker:
        broker.produce("clicks", T)
        assert [(one.start_offset, one.end_offset) for one in broker.report()] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_reports_that_the_audit_topic_has_lost_are_made_again(tmp_path: Path) -> None:
    """As in a power failure, which reports of others follow, so that the topic is as long as before."""
    with AuditedBroker(tmp_path) as broker:
        create_topic(broker.client, "clicks")
        begin_audit(broker)
        for _ in range(3):
            broker.produce("clicks", T)
            broker.report()
    (tmp_path / "clean-shutdown").unlink()
    log = tmp_path / f"{AUDIT_TOPIC}-0" / f"{0:020d}.log"
    sizes = [header.size_bytes for _, header in iterate_batches(log.read_bytes())]
    with log.open("r+b") as file:
        file.truncate(sizes[0])
    with AuditedBroker(tmp_path) as broker:
        for _ in range(5):
            broker.client.produce(AUDIT_TOPIC, a_batch(1))
        reports = [one for one in broker.report() if one.topic == "clicks"]
        assert [(one.start_offset, one.end_offset) for one in reports] == [(0, 1), (1, 3)]


@pytest.mark.parametrize("left", [0, 1, 2, 13, 25])
def test_a_log_that_lost_its_end_is_counted_again_from_a_report_that_it_still_holds(tmp_path: Path, left: int) -> None:
    with AuditedBroker(tmp_path) as broker:
        create_topic(broker.client, "clicks")
        begin_audit(broker)
        for _ in range(REMEMBERED_STARTS + 10):
            broker.produce("clicks", T)
            broker.report()
    (tmp_path / "clean-shutdown").unlink()
    log = tmp_path / "clicks-0" / f"{0:020d}.log"
    sizes = [header.size_bytes for _, header in iterate_batches(log.read_bytes())]
    with log.open("r+b") as file:
        file.truncate(sum(sizes[:left]))
    with AuditedBroker(tmp_path) as broker:
        assert totals(broker.report()) == ({("clicks", T, T + MINUTE_MS): left} if left else {})
        broker.produce("clicks", T, T)
        assert totals(broker.report()) == {("clicks", T, T + MINUTE_MS): left + 2}


def test_a_topic_that_is_created_again_is_counted_from_its_start(broker: AuditedBroker) -> None:
    begin_audit(broker)
    broker.produce("clicks", T, T, T)
    broker.report()
    broker.client.ask(DeleteTopicsRequest(topic_names=["clicks"], timeout_ms=5000), 5)
    create_topic(broker.client, "clicks", 2)
    later = T + MINUTE_MS
    broker.produce("clicks", later, later, later, later)
    assert totals(broker.report()) == {("clicks", later, later + MINUTE_MS): 4}


def test_an_audit_topic_that_is_created_again_gets_all_counts_again(broker: AuditedBroker) -> None:
    begin_audit(broker)
    broker.produce("clicks", T)
    broker.report()
    broker.client.ask(DeleteTopicsRequest(topic_names=[AUDIT_TOPIC], timeout_ms=5000), 5)
    begin_audit(broker)
    assert totals(broker.report()) == {("clicks", T, T + MINUTE_MS): 1}


def test_offsets_that_were_deleted_uncounted_are_logged(
    broker: AuditedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    begin_audit(broker)
    broker.produce("clicks", T)
    broker.report()
    for _ in range(4):
        broker.produce("clicks", T)
    broker.look(lambda inside: inside.replicas.leader("clicks", 0).log.delete_records(3))
    reports = broker.report()
    assert [(one.start_offset, one.end_offset) for one in reports] == [(0, 1), (1, 5)]
    assert totals(reports) == {("clicks", T, T + MINUTE_MS): 3}
    assert "clicks-0: offsets 1 to 3 were deleted" in caplog.text


def test_a_failed_round_is_counted_and_retried_and_the_broker_continues(tmp_path: Path) -> None:
    with AuditedBroker(tmp_path) as broker:
        create_topic(broker.client, "clicks")
        obstacle = tmp_path / (CHECKPOINT + ".tmp")
        obstacle.mkdir()
        begin_audit(broker)
        broker.produce("clicks", T)
        broker.begin_tier(interval_s=0.02)
        until(lambda: broker.tier.failures > 2, "the tier to fail")
        broker.produce("clicks", T)
        obstacle.rmdir()
        until((tmp_path / CHECKPOINT).exists, "a checkpoint")
        until(lambda: totals(audit_log(broker.client)) == {("clicks", T, T + MINUTE_MS): 2}, "both to be counted")


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left"), False),
        (OSError(5, "Input/output error"), False),
        (InvalidBatchError("damaged"), False),
        (ZeroDivisionError("division by zero"), True),
    ],
    ids=repr,
)
def test_a_failure_that_the_operator_can_mend_is_one_line_in_the_log(
    broker: AuditedBroker, caplog: pytest.LogCaptureFixture, error: Exception, has_traceback: bool
) -> None:
    broker.tier._note(error)
    assert broker.tier.failures == 1
    broker.tier.failures = 0
    (record,) = (each for each in caplog.records if "counting stored messages failed" in each.message)
    assert str(error) in record.message
    assert (record.exc_info is not None) is has_traceback


def test_a_batch_that_claims_more_records_than_offsets_is_not_counted(tmp_path: Path) -> None:
    """A bit may flip between the check of a batch and the moment at which its header is read."""
    batch = build_batch([Record(b"v", timestamp=T)] * 3)
    path = tmp_path / "segment.log"
    for count, is_counted in ((3, True), (2, True), (4, False), (3 | 1 << 25, False), (-3, False)):
        batch[RECORD_COUNT_AT : RECORD_COUNT_AT + 4] = count.to_bytes(4, "big", signed=True)
        path.write_bytes(batch)
        counts = WindowCounts(MINUTE_MS)
        part = FileSlice(LogFile(path), 0, len(batch))
        if is_counted:
            assert count_batches(part, counts, 0, 3) == 3
            assert sum(each.messages for each in counts.counts()) == count
        else:
            with pytest.raises(InvalidBatchError, match="no batch at byte 0"):
                count_batches(part, counts, 0, 3)


def test_a_damaged_log_does_not_keep_others_from_being_counted(tmp_path: Path) -> None:
    with AuditedBroker(tmp_path) as broker:
        create_topic(broker.client, "clicks", 2)
        broker.produce("clicks", T)
        broker.produce("clicks", T, partition=1)
    with (tmp_path / "clicks-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(70)
        file.write(b"?")
    with AuditedBroker(tmp_path) as broker:
        begin_audit(broker)
        assert [(report.partition, report.end_offset) for report in broker.report()] == [(1, 1)]
        assert broker.tier.failures == 1


# -- killed brokers


async def serve(directory: Path, port: int) -> None:
    broker = standalone_broker(directory)
    print(await broker.start("127.0.0.1", port), flush=True)
    tier = StoredTier(broker, delay_s=0.005, interval_s=0.005)
    tier.start()
    await asyncio.Event().wait()


def start_serving(directory: Path, port: int) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "tests.audit.test_stored_tier", str(directory), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_brokers_killed_at_any_moment_report_what_their_logs_hold(tmp_path: Path) -> None:
    dice = random.Random(seed())
    truth: Counter[tuple[str, int, int]] = Counter()
    port = 0
    for kill in range(5):
        process, port = start_serving(tmp_path / "data", port)
        with RawClient(port) as client:
            if not kill:
                create_topic(client, "clicks", 3)
                create_topic(client, AUDIT_TOPIC)
            for _ in range(dice.randrange(50, 300)):
                window, messages = dice.randrange(5), dice.randrange(1, 20)
                batch = a_batch(messages, timestamp=T + window * MINUTE_MS)
                assert client.produce("clicks", batch, partition=dice.randrange(3)).error_code == 0
                truth["clicks", T + window * MINUTE_MS, T + (window + 1) * MINUTE_MS] += messages
            process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    with AuditedBroker(tmp_path / "data") as broker:
        reports = broker.report()
        assert totals(reports) == truth
        assert len(reports) > 20


def test_skylog_serve_counts_beside_its_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        with RawClient(process.port) as client:
            create_topic(client, "clicks")
            create_topic(client, AUDIT_TOPIC)
            client.produce("clicks", a_batch(3, timestamp=T))
        process.stop()
        process.start()
        with RawClient(process.port) as client:
            assert totals(audit_log(client)) == {("clicks", T, T + MINUTE_MS): 3}


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
