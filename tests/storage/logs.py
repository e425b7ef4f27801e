"""Logs for the tests of storage: created, stopped cleanly or not, and reopened."""

from __future__ import annotations

from pathlib import Path

from skylog.config import parse
from skylog.model import TopicPartition
from skylog.records import BatchHeader, Codec, Record, build_batch, check_batch, iterate_batches
from skylog.storage import AppendResult, Log, LogConfig
from skylog.storage.files import FilePool
from skylog.testing import DiskFaults, ManualClock

NAME = TopicPartition("clicks", 0)


def a_batch(count: int = 1, size_bytes: int = 20, timestamp: int = 1000, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch(
        [Record(value=b"v" * size_bytes, key=b"%d" % i, timestamp=timestamp + i) for i in range(count)], codec=codec
    )


def idempotent(sequence: int, count: int = 1, producer_id: int = 7, epoch: int = 0) -> bytearray:
    records = [Record(value=b"v", timestamp=1000) for _ in range(count)]
    return build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def transactional(
    sequence: int, count: int = 1, producer_id: int = 7, epoch: int = 0, key: bytes | None = None
) -> bytearray:
    records = [Record(value=b"t", key=key, timestamp=1000) for _ in range(count)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )


def settings(**values: object) -> LogConfig:
    return parse(LogConfig, {key.replace("_", "."): str(value) for key, value in values.items()})


class Home:
    """The directory of one log, and its state between two openings."""

    def __init__(self, path: Path, **values: object) -> None:
        self.directory = path / str(NAME)
        self.clock = ManualClock()
        self.disk = DiskFaults()
        self.config = settings(**values)
        self.pool_capacity = 512

    def open(self, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
        return Log(
            self.directory,
            NAME,
            self.config,
            FilePool(self.disk.open_file, self.pool_capacity),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            now_ms=self.clock.now_ms(),
        )

    def append(self, log: Log, batch: bytearray, epoch: int = 0) -> AppendResult:
        """Append as the only replica does: an appended batch is replicated immediately."""
        appended = log.append_as_leader(batch, epoch, self.clock.now_ms())
        log.advance_high_watermark(appended.end_offset)
        return appended

    def append_verified(self, log: Log, batch: bytearray, epoch: int = 0) -> AppendResult:
        """Append a transactional batch as if the coordinator had just said that it belongs to a transaction."""
        admitted = log.admission.admit(batch, self.clock.now_ms())
        stamp = log.producers.last_marker_offset(admitted[1].producer_id)
        appended = log.append_admitted(admitted, epoch, self.clock.now_ms(), stamp)
        log.advance_high_watermark(appended.end_offset)
        return appended

    def end(
        self,
        log: Log,
        producer_id: int = 7,
        *,
        commits: bool,
        producer_epoch: int = 0,
        coordinator_epoch: int = 0,
        is_replicated: bool = True,
    ) -> AppendResult:
        """End the transaction of a producer."""
        appended = log.append_marker(
            producer_id,
            producer_epoch,
            commits=commits,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=0,
            now_ms=self.clock.now_ms(),
        )
        if is_replicated:
            log.advance_high_watermark(appended.end_offset)
        return appended

    def open_with_transactions(self) -> Log:
        """Open a log with ten transactions of producer 2, of which two of three are aborted, and messages between.

        The transaction of producer 1 stays open from offset 0 on.
        """
        log = self.open()
        self.append_verified(log, transactional(0, producer_id=1))
        for number in range(10):
            self.append_verified(log, transactional(number * 2, 2, producer_id=2))
            self.end(log, 2, commits=number % 3 == 0)
            self.append(log, idempotent(number, producer_id=3))
        return log

    def restart(self, log: Log) -> Log:
        """Stop cleanly and open again."""
        flush(log)
        log.close()
        return self.open(clean=True, log_start_offset=log.log_start_offset)

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.directory.glob(f"*{suffix}"))


def flush(log: Log) -> None:
    task = log.begin_flush()
    task.run()
    log.end_flush(task)


def read_all(log: Log, max_bytes: int = 1 << 20) -> list[bytes]:
    """Every batch of the log, as a consumer gets them: each read begins where the last one ended."""
    batches: list[bytes] = []
    offset = log.log_start_offset
    while (found := log.read(offset, max_bytes)) is not None:
        data = found.read()
        assert data, f"nothing at offset {offset}"
        whole = list(split(data))
        assert sum(map(len, whole)) == len(data), "a batch was cut"
        batches += whole
        offset = check_batch(whole[-1]).end_offset
    assert offset == log.log_end_offset
    return batches


def split(data: bytes) -> list[bytes]:
    return [data[position : position + header.size_bytes] for position, header in iterate_batches(data)]


def header_of(batch: bytes | bytearray) -> BatchHeader:
    return BatchHeader.read(batch)
