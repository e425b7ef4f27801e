"""A log against a plain list: any sequence of appends, reads, rolls, retention, restarts and crashes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from skylog.errors import ErrorCode, KafkaError
from skylog.records import BatchHeader, Codec, Record, build_batch, iterate_batches
from tests.present import present
from tests.storage.logs import Home, flush

sizes = st.integers(1, 60)


class LogAgainstList(RuleBasedStateMachine):
    """`stored` maps each base offset to the batch there; `sent` lists the batches of the idempotent producer.

    Each entry of `sent` is a base offset, the first sequence number there and a count. It outlives retention.
    """

    @initialize(interval=st.sampled_from([0, 100, 100_000]), segment_bytes=st.sampled_from([200, 600, 10_000]))
    def begin(self, interval: int, segment_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.home = Home(
            self.folder, index_interval_bytes=interval, segment_bytes=segment_bytes, retention_ms=100, segment_ms=500
        )
        self.log = self.home.open()
        self.stored: dict[int, bytes] = {}
        self.start = self.end = self.durable = 0
        self.flushed = 0  # what the checkpoint says of `durable`
        self.sent: list[tuple[int, int, int]] = []

    def teardown(self) -> None:
        rmtree(self.folder, ignore_errors=True)

    @rule(count=st.integers(1, 4), size=sizes, codec=st.sampled_from(list(Codec)), late_ms=st.integers(-50, 0))
    def append(self, count: int, size: int, codec: Codec, late_ms: int) -> None:
        now_ms = self.home.clock.now_ms()
        batch = build_batch(
            [Record(value=b"x" * size, timestamp=now_ms + late_ms + i) for i in range(count)], codec=codec
        )
        self._store(batch, count)

    @property
    def next_sequence(self) -> int:
        return self.sent[-1][1] + self.sent[-1][2] if self.sent else 0

    @rule(count=st.integers(1, 3))
    def append_idempotent(self, count: int) -> None:
        sequence = self.next_sequence
        self.sent.append((self.end, sequence, count))
        self._store(self._from_producer(sequence, count), count)

    @rule(back=st.integers(1, 5))
    def send_again(self, back: int) -> None:
        if len(self.sent) >= back:
            base_offset, sequence, count = self.sent[-back]
            result = self.home.append(self.log, self._from_producer(sequence, count))
            assert (result.is_duplicate, result.base_offset) == (True, base_offset)

    @rule()
    def send_with_a_gap(self) -> None:
        if self.sent:
            with pytest.raises(KafkaError):
                self.home.append(self.log, self._from_producer(self.next_sequence + 1, 1))

    def _from_producer(self, sequence: int, count: int) -> bytearray:
        records = [Record(value=b"y", timestamp=self.home.clock.now_ms()) for _ in range(count)]
        return build_batch(records, producer_id=1, producer_epoch=0, base_sequence=sequence)

    def _store(self, batch: bytearray, count: int) -> None:
        result = self.home.append(self.log, batch)
        assert (result.base_offset, result.end_offset) == (self.end, self.end + count)
        self.stored[self.end] = bytes(batch)
        self.end += count

    @rule(free=st.integers(0, 80))
    def append_to_a_full_disk(self, free: int) -> None:
        self.home.disk.free_bytes = free
        with pytest.raises(KafkaError) as caught:
            self.home.append(self.log, build_batch([Record(value=b"z" * 100)]))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        self.home.disk.free_bytes = None

    @rule(duration_ms=st.integers(1, 120))
    def wait(self, duration_ms: int) -> None:
        self.home.clock.advance_ms(duration_ms)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.home.clock.now_ms())

    @rule()
    def flush(self) -> None:
        flush(self.log)
        self.flushed = self.durable = self.end

    @rule()
    def stop_cleanly(self) -> None:
        self.log = self.home.restart(self.log)
        self.flushed = self.durable = self.end

    @rule()
    def crash(self) -> None:
        self.log = self.home.open(recovery_point=self.flushed, log_start_offset=self.start)

    @rule()
    def crash_without_a_checkpoint(self) -> None:
        self.log = self.home.open(log_start_offset=self.start)
        self.flushed = 0

    @rule(lost=st.integers(1, 200))
    def crash_with_a_torn_end(self, lost: int) -> None:
        """The end of the last file is lost, as far as it was not flushed."""
        active = self.log.segments[-1]
        path, size_bytes = active.path, active.size_bytes
        safe = sum(len(batch) for base, batch in self.stored.items() if active.base_offset <= base < self.durable)
        size_bytes = max(size_bytes - lost, safe)
        path.write_bytes(path.read_bytes()[:size_bytes])
        position = 0
        for base in sorted(base for base in self.stored if base >= active.base_offset):
            position += len(self.stored[base])
            if position > size_bytes:
                self._forget_from(base)
                break
        self.log = self.home.open(recovery_point=self.flushed, log_start_offset=self.start)

    def _forget_from(self, offset: int) -> None:
        self.stored = {base: batch for base, batch in self.stored.items() if base < offset}
        self.end = offset
        self.start = min(self.start, self.end)
        self.sent = [entry for entry in self.sent if entry[0] < offset]

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.log.delete_records(offset)
        self.start = offset

    @rule()
    def retain(self) -> None:
        now_ms = self.home.clock.now_ms()
        for path in self.log.drop_expired(now_ms):
            path.unlink()
        assert self.log.log_start_offset >= self.start
        for base, batch in self.stored.items():
            header = BatchHeader.read(batch)
            if self.start <= base and header.end_offset <= self.log.log_start_offset:
                assert now_ms - header.max_timestamp > 100, "dropped too early"
        self.start = self.log.log_start_offset
        first = self.log.segments[0].base_offset
        self.stored = {base: batch for base, batch in self.stored.items() if base >= first}

    @invariant()
    def the_bounds_are_right(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)

    @rule(max_bytes=st.sampled_from([0, 150, 1000, 1 << 20]))
    def read_everything(self, max_bytes: int) -> None:
        offset, data = self.start, b""
        while (found := self.log.read(offset, max_bytes)) is not None:
            data += found.read()
            offset = [header for _, header in iterate_batches(found.read())][-1].end_offset
        bases = [base for base in sorted(self.stored) if base + _length(self.stored[base]) > self.start]
        assert data == b"".join(self.stored[base] for base in bases)

    @rule(share=st.floats(0, 1))
    def read_one(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        found = self.log.read(offset, 1)
        if offset == self.end:
            assert found is None
        else:
            assert present(found).read() == self.stored[max(base for base in self.stored if base <= offset)]


def _length(batch: bytes) -> int:
    return BatchHeader.read(batch).last_offset_delta + 1


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
