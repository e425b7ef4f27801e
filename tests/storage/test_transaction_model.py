"""Transactions of several producers against a plain list: any history of batches, markers, restarts and cleanings."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from skylog.errors import ErrorCode, KafkaError
from skylog.records import Record, build_batch
from skylog.storage.cleaner import clean
from skylog.storage.compaction import commit
from tests.proof import proof
from tests.storage.committed_reader import read_committed
from tests.storage.logs import Home, flush

PRODUCERS = (1, 2, 3)
KEYS = (b"a", b"b", b"c")
STEPS = (
    *["write"] * 8,
    *["commit"] * 3,
    *["abort"] * 3,
    "abort and raise the epoch",
    "write plain",
    "replicate",
    "roll",
    "flush",
)


@dataclass
class Transaction:
    """The end is the offset of the marker, None while it is open."""

    producer_id: int
    first_offset: int
    end: int | None = None
    commits: bool = False


@dataclass
class Stored:
    """A batch of the model."""

    base_offset: int
    keys: tuple[bytes, ...]
    producer_id: int
    epoch: int
    sequence: int
    transaction: Transaction | None = None
    is_marker: bool = False

    @property
    def end_offset(self) -> int:
        return self.base_offset + (1 if self.is_marker else len(self.keys))

    @property
    def records(self) -> list[tuple[int, bytes]]:
        return [] if self.is_marker else [(self.base_offset + index, key) for index, key in enumerate(self.keys)]


@dataclass
class Producer:
    epoch: int = 0
    sequence: int = 0
    transaction: Transaction | None = None


class TransactionsAgainstList(RuleBasedStateMachine):
    """`stored` has all batches ever appended and not cut off. Retention and compaction leave it as it is."""

    @initialize(
        segment_bytes=st.sampled_from([200, 500, 100_000]),
        interval=st.sampled_from([0, 100]),
        is_compacted=st.sampled_from([True, True, False]),
    )
    def begin(self, segment_bytes: int, interval: int, is_compacted: bool) -> None:
        self.folder = Path(tempfile.mkdtemp())
        policy = "compact" if is_compacted else "delete"
        self.home = Home(
            self.folder,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            cleanup_policy=policy,
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=50,
        )
        self.log = self.home.open()
        self.stored: list[Stored] = []
        self.producers = {producer_id: Producer() for producer_id in PRODUCERS}
        self.start = self.flushed = self.high_watermark = self.cleaned = 0
        self.has_lost_state = False
        self.coordinator_epoch = 0

    def teardown(self) -> None:
        rmtree(self.folder, ignore_errors=True)

    @property
    def end(self) -> int:
        return self.stored[-1].end_offset if self.stored else 0

    # -- appending

    @rule(steps=st.lists(st.tuples(st.sampled_from(PRODUCERS), st.sampled_from(STEPS)), min_size=8, max_size=25))
    def produce(self, steps: list[tuple[int, str]]) -> None:
        for number, (producer_id, step) in enumerate(steps):
            match step:
                case "write":
                    self.write(producer_id, [KEYS[number % 3], KEYS[number // 3 % 3]], is_transactional=True)
                case "write plain":
                    self.write(producer_id, [KEYS[number % 3]], is_transactional=False)
                case "commit" | "abort" | "abort and raise the epoch":
                    self.end_transaction(producer_id, commits=step == "commit", raises_epoch=step.endswith("epoch"))
                case "replicate":
                    self.replicate_everything()
                case "roll":
                    self.roll()
                case "flush":
                    self.flush()

    def write(self, producer_id: int, keys: list[bytes], is_transactional: bool) -> None:
        producer = self.producers[producer_id]
        is_transactional = is_transactional or producer.transaction is not None
        try:
            self._append(producer_id, producer, tuple(keys), is_transactional)
        except KafkaError as error:
            if not self.has_lost_state or error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            producer.epoch, producer.sequence = producer.epoch + 1, 0
            self._append(producer_id, producer, tuple(keys), is_transactional)

    def _append(self, producer_id: int, producer: Producer, keys: tuple[bytes, ...], is_transactional: bool) -> None:
        batch = build_batch(
            [Record(key=key, value=b"v", timestamp=self.home.clock.now_ms()) for key in keys],
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=is_transactional,
        )
        now_ms = self.home.clock.now_ms()
        stamp = self.log.producers.last_marker_offset(producer_id)
        appended = self.log.append_admitted(self.log.admission.admit(batch, now_ms), 0, now_ms, stamp)
        assert (appended.base_offset, appended.is_duplicate) == (self.end, False)
        if is_transactional and producer.transaction is None:
            producer.transaction = Transaction(producer_id, self.end)
        self.stored.append(Stored(self.end, keys, producer_id, producer.epoch, producer.sequence, producer.transaction))
        producer.sequence += len(keys)

    def end_transaction(self, producer_id: int, commits: bool, raises_epoch: bool) -> None:
        producer = self.producers[producer_id]
        if raises_epoch:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        appended = self.log.append_marker(
            producer_id,
            producer.epoch,
            commits=commits,
            coordinator_epoch=self.coordinator_epoch,
            leader_epoch=0,
            now_ms=self.home.clock.now_ms(),
        )
        assert appended.base_offset == self.end
        transaction, producer.transaction = producer.transaction, None
        if transaction is not None:
            transaction.end, transaction.commits = self.end, commits
        marker = Stored(self.end, (), producer_id, producer.epoch, producer.sequence, transaction, is_marker=True)
        self.stored.append(marker)

    @rule(share=st.floats(0, 1))
    def replicate(self, share: float) -> None:
        bounds = [each.end_offset for each in self.stored if each.end_offset > self.high_watermark]
        if bounds:
            self.high_watermark = bounds[int(share * (len(bounds) - 1))]
            self.log.advance_high_watermark(self.high_watermark)

    def replicate_everything(self) -> None:
        self.high_watermark = self.end
        self.log.advance_high_watermark(self.end)

    # -- the life of a log

    @rule(duration_ms=st.integers(1, 100))
    def wait(self, duration_ms: int) -> None:
        self.home.clock.advance_ms(duration_ms)

    def roll(self) -> None:
        self.log.roll(self.home.clock.now_ms())

    def flush(self) -> None:
        flush(self.log)
        self.flushed = self.end

    @rule()
    def stop_cleanly(self) -> None:
        first_dirty = self.log.first_dirty_offset
        self.log = self.home.restart(self.log)
        self._reopened(first_dirty)
        self.flushed = self.end

    @rule(forgets_flush=st.booleans())
    def crash(self, forgets_flush: bool) -> None:
        first_dirty = self.log.first_dirty_offset
        recovery_point = 0 if forgets_flush else self.flushed
        self.log = self.home.open(recovery_point=recovery_point, log_start_offset=self.start)
        self._reopened(first_dirty)
        self.flushed = recovery_point

    def _reopened(self, first_dirty: int) -> None:
        self.log.first_dirty_offset = first_dirty
        self.log.restore_high_watermark(self.high_watermark)

    @rule(number=st.integers(0, 3), is_clean=st.booleans())
    def lose_an_index_of_aborted_transactions(self, number: int, is_clean: bool) -> None:
        flush(self.log)
        self.log.close()
        self.flushed = self.end
        for path in self.home.files(".txnindex")[number::4]:
            path.unlink()
        first_dirty = self.log.first_dirty_offset
        recovery_point = self.flushed if is_clean else 0
        self.log = self.home.open(clean=is_clean, recovery_point=recovery_point, log_start_offset=self.start)
        self._reopened(first_dirty)

    @rule()
    def lose_all_snapshots_and_crash(self) -> None:
        for path in self.home.files(".snapshot"):
            path.unlink()
        self.has_lost_state = True
        self.crash(forgets_flush=False)
        # Transactions that began in dropped segments begin with what is left of them, if anything is. They may have
        # ended: without a replicated marker they still hold readers up.
        base_offset = self.log.segments[0].base_offset
        for each in self.stored:
            transaction = each.transaction
            if transaction is not None and transaction.first_offset < base_offset and self._is_unstable(transaction):
                self._begin_later(transaction, base_offset)

    def _is_unstable(self, transaction: Transaction) -> bool:
        return transaction.end is None or transaction.end >= self.high_watermark

    def _begin_later(self, transaction: Transaction, base_offset: int) -> None:
        own = [each for each in self.stored if each.transaction is transaction]
        left = [each for each in own if each.base_offset >= base_offset and not each.is_marker]
        if left:
            transaction.first_offset = left[0].base_offset
            return
        for each in own:
            each.transaction = None
        for producer in self.producers.values():
            if producer.transaction is transaction:
                producer.transaction = None

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Cut off what is not replicated, as a follower does."""
        bounds = [self.high_watermark, *(s.end_offset for s in self.stored if s.end_offset > self.high_watermark)]
        offset = bounds[int(share * (len(bounds) - 1))]
        for path in self.log.truncate_to(offset, self.home.clock.now_ms()):
            path.unlink(missing_ok=True)
        cut = [each for each in self.stored if each.base_offset >= offset]
        self.stored = [each for each in self.stored if each.base_offset < offset]
        self.flushed = min(self.flushed, offset)
        for each in cut:
            if each.is_marker and each.transaction is not None:
                each.transaction.end = None
        for producer_id in {each.producer_id for each in cut}:
            self._rewind(producer_id)

    def _rewind(self, producer_id: int) -> None:
        own = [each for each in self.stored if each.producer_id == producer_id]
        producer = self.producers[producer_id] = Producer()
        if own:
            last = own[-1]
            producer.epoch, producer.sequence = last.epoch, last.sequence + len(last.keys)
            if last.transaction is not None and last.transaction.end is None:
                producer.transaction = last.transaction

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.start += int((self.high_watermark - self.start) * share)
        self.log.delete_records(self.start)

    @rule()
    def retain(self) -> None:
        for path in self.log.drop_expired(self.home.clock.now_ms()):
            path.unlink()
        assert self.log.log_start_offset == self.start

    @rule(is_settled=st.booleans(), max_keys=st.sampled_from([1, 2, 1000]))
    def compact(self, is_settled: bool, max_keys: int) -> None:
        if is_settled:
            for producer_id, producer in self.producers.items():
                if producer.transaction is not None:
                    self.end_transaction(producer_id, commits=producer_id != 2, raises_epoch=False)
            self.replicate_everything()
            self.roll()
        self.flush()
        job = self.log.plan_cleaning(self.home.clock.now_ms(), max_keys)
        if job is None:
            return
        result = clean(job)
        for cleaned in result.segments:
            commit(self.log.directory, cleaned)
            for path in self.log.replace(cleaned):
                path.unlink(missing_ok=True)
        self.log.first_dirty_offset = self.cleaned = result.clean_to

    # -- what must hold

    @property
    def stable_offset(self) -> int:
        """The first offset of a transaction without a replicated marker, within the log and the high watermark."""
        open_offsets = [
            each.transaction.first_offset
            for each in self.stored
            if each.transaction and self._is_unstable(each.transaction)
        ]
        return min([self.high_watermark, *(max(offset, self.start) for offset in open_offsets)])

    @invariant()
    def readers_get_what_is_committed(self) -> None:
        if hasattr(self, "log"):
            self.read_committed(0.0, 200)

    @invariant()
    def the_offsets_are_right(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (
                self.start,
                self.high_watermark,
                self.end,
            )
            assert log.last_stable_offset == self.stable_offset

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([1, 150, 400, 1 << 20]))
    def read_committed(self, share: float, max_bytes: int) -> None:
        from_offset = self.start + int((self.high_watermark - self.start) * share)
        seen = read_committed(self.log, from_offset, max_bytes)
        committed = [
            record
            for each in self.stored
            if each.transaction is None or (each.transaction.end is not None and each.transaction.commits)
            for record in each.records
            if from_offset <= record[0] < self.stable_offset
        ]
        assert set(seen) <= set(committed)
        assert seen == sorted(set(seen))
        assert {each for each in committed if not self._may_be_gone(each)} <= set(seen)

    def _may_be_gone(self, record: tuple[int, bytes]) -> bool:
        """Whether compaction may have removed a committed record: it has cleaned a later one of the same key."""
        offset, key = record
        return any(
            later_key == key and offset < later < self.cleaned
            for each in self.stored
            if each.transaction is None or (each.transaction.end is not None and each.transaction.commits)
            for later, later_key in each.records
        )


TestTransactionsAgainstList = TransactionsAgainstList.TestCase
TestTransactionsAgainstList.settings = settings(max_examples=proof(600, 25), stateful_step_count=25, deadline=None)
