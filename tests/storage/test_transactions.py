"""Transactions in a log: which batches may be appended, which transactions are open, and the last stable offset."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from skylog.errors import ErrorCode, KafkaError
from skylog.records import BatchHeader, Record, build_batch
from skylog.storage import Log
from skylog.storage.aborted_index import AbortedTransaction
from skylog.storage.config import DAY_MS
from tests.present import present
from tests.storage.logs import Home, flush, idempotent, settings, transactional


def refused(home: Home, log: Log, batch: bytearray, *, is_verified: bool = True) -> ErrorCode:
    end_offset = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        home.append_verified(log, batch) if is_verified else home.append(log, batch)
    assert log.log_end_offset == end_offset
    return caught.value.code


def refused_marker(
    home: Home, log: Log, producer_id: int = 7, *, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        home.end(log, producer_id, commits=True, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch)
    return caught.value.code


class TestBatches:
    def test_the_first_batch_of_a_transaction_must_be_verified(self, home: Home) -> None:
        log = home.open()
        assert refused(home, log, transactional(0), is_verified=False) is ErrorCode.INVALID_TXN_STATE
        home.append_verified(log, transactional(0))
        assert home.append(log, transactional(1)).base_offset == 1

    def test_after_a_marker_the_next_transaction_must_be_verified_again(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0))
        home.end(log, commits=True)
        assert refused(home, log, transactional(1), is_verified=False) is ErrorCode.INVALID_TXN_STATE
        assert home.append_verified(log, transactional(1)).base_offset == 2

    def test_a_verification_from_before_a_marker_begins_no_transaction(self, home: Home) -> None:
        """The coordinator said yes, then it ended the transaction, then the batch arrives."""
        log = home.open()
        home.append_verified(log, transactional(0))
        home.end(log, commits=True)
        stamp = log.producers.last_marker_offset(7)
        home.end(log, commits=False)
        with pytest.raises(KafkaError) as caught:
            log.append_admitted(log.admission.admit(transactional(1), 0), 0, 0, stamp)
        assert caught.value.code is ErrorCode.INVALID_TXN_STATE

    def test_a_duplicate_needs_no_verification(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, 3))
        home.end(log, commits=True)
        found = home.append(log, transactional(0, 3))
        assert (found.is_duplicate, found.base_offset) == (True, 0)

    def test_a_producer_may_not_mix_batches_inside_and_outside_of_its_transaction(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0))
        assert refused(home, log, idempotent(1)) is ErrorCode.INVALID_TXN_STATE
        assert refused(home, log, idempotent(0, epoch=1)) is ErrorCode.INVALID_TXN_STATE
        home.end(log, commits=True)
        assert home.append(log, idempotent(1)).base_offset == 2

    def test_sequences_continue_after_a_marker_of_the_same_epoch(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, 5))
        home.end(log, commits=False)
        assert refused(home, log, transactional(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert home.append_verified(log, transactional(5)).base_offset == 6

    def test_a_marker_of_a_new_epoch_fences_the_old_one_and_sequences_begin_again(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, 5))
        home.end(log, commits=True, producer_epoch=1)
        assert refused(home, log, transactional(5)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert refused(home, log, transactional(5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert home.append_verified(log, transactional(0, epoch=1)).base_offset == 6

    def test_a_sequence_of_an_aborted_transaction_matches_nothing_after_the_epoch_is_raised(self, home: Home) -> None:
        """Redpanda 5026: a broker that compares sequences only answers with the offset of an aborted batch."""
        log = home.open()
        home.append_verified(log, transactional(0, 2))
        home.end(log, commits=False, producer_epoch=1)
        again = home.append_verified(log, transactional(0, 2, epoch=1))
        assert (again.is_duplicate, again.base_offset) == (False, 3)

    def test_a_transaction_goes_on_in_a_new_epoch(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, 2))
        assert refused(home, log, transactional(0, epoch=1), is_verified=False) is ErrorCode.INVALID_TXN_STATE
        home.append_verified(log, transactional(0, epoch=1))
        assert not log.producers.has_open_transaction(7, 0)
        assert log.producers.has_open_transaction(7, 1)
        assert log.last_stable_offset == 0

    def test_batches_of_a_coordinator_need_no_sequence(self, home: Home) -> None:
        log = home.open()
        offsets = build_batch([Record(key=b"k")], producer_id=7, producer_epoch=3, transactional=True)
        for _ in range(2):
            log.append_admitted(log.admission.admit_own(memoryview(offsets)), 0, 0)
        assert (log.log_end_offset, log.last_stable_offset) == (2, 0)
        entry = present(log.producers.find(7))
        assert (entry.last_sequence, entry.transaction_start) == (-1, 0)
        fenced = build_batch([Record(key=b"k")], producer_id=7, producer_epoch=2, transactional=True)
        with pytest.raises(KafkaError) as caught:
            log.append_admitted(log.admission.admit_own(memoryview(fenced)), 0, 0)
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


class TestMarkers:
    def test_a_marker_takes_one_offset_and_is_a_control_batch_of_the_leader_s_epoch(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, 2))
        marker = home.end(log, commits=True)
        assert (marker.base_offset, marker.end_offset, marker.is_duplicate) == (2, 3, False)
        header = BatchHeader.read(present(log.read(2, 1)).read())
        assert (header.is_control, header.base_offset, header.partition_leader_epoch) == (True, 2, 0)
        assert header.max_timestamp == home.clock.now_ms()

    def test_markers_of_older_epochs_are_refused(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, epoch=3))
        assert refused_marker(home, log, producer_epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
        home.end(log, commits=True, producer_epoch=3, coordinator_epoch=5)
        home.append_verified(log, transactional(1, epoch=3))
        fenced = refused_marker(home, log, producer_epoch=3, coordinator_epoch=4)
        assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        home.end(log, commits=True, producer_epoch=3, coordinator_epoch=5)

    def test_the_marker_of_an_empty_transaction_is_stored_and_fences_the_producer(self, home: Home) -> None:
        log = home.open()
        home.end(log, commits=False, producer_epoch=4, coordinator_epoch=2)
        assert (log.log_end_offset, log.last_stable_offset) == (1, 1)
        assert refused(home, log, transactional(0, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert refused(home, log, transactional(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert home.append_verified(log, transactional(0, epoch=4)).base_offset == 1

    def test_a_marker_that_is_sent_again_changes_nothing(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0))
        home.end(log, commits=True)
        home.end(log, commits=True)
        assert log.last_stable_offset == 3

    def test_a_producer_with_an_open_transaction_does_not_expire(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0))
        home.clock.advance_ms(30 * DAY_MS)
        assert log.producers.expire(home.clock.now_ms() - DAY_MS) == 0
        assert log.last_stable_offset == 0

    def test_a_marker_counts_as_a_sign_of_life(self, home: Home) -> None:
        """KAFKA-9144: a producer whose transactions are all empty here, or ended long after its last batch, stays."""
        log = home.open()
        home.append_verified(log, transactional(0))
        home.clock.advance_ms(DAY_MS)
        home.end(log, commits=True)
        home.clock.advance_ms(DAY_MS // 2)
        assert log.producers.expire(home.clock.now_ms() - DAY_MS) == 0
        assert present(log.producers.find(7)).last_timestamp == home.clock.now_ms() - DAY_MS // 2
        home.clock.advance_ms(DAY_MS)
        assert log.producers.expire(home.clock.now_ms() - DAY_MS) == 1


class TestLastStableOffset:
    def test_it_is_the_start_of_the_earliest_open_transaction(self, home: Home) -> None:
        log = home.open()
        home.append(log, idempotent(0, 3, producer_id=1))
        home.append_verified(log, transactional(0, 2, producer_id=2))
        home.append_verified(log, transactional(0, 2, producer_id=3))
        assert log.last_stable_offset == 3
        home.end(log, 2, commits=False)
        assert log.last_stable_offset == 5
        home.append_verified(log, transactional(2, producer_id=2))
        home.end(log, 3, commits=True)
        assert log.last_stable_offset == 8
        home.end(log, 2, commits=True)
        assert log.last_stable_offset == log.log_end_offset == 11

    def test_it_stands_until_the_marker_is_replicated(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, 2))
        home.end(log, commits=True, is_replicated=False)
        log.append_as_leader(idempotent(0, producer_id=9), 0, 0)
        log.advance_high_watermark(2)
        assert log.last_stable_offset == 0
        log.advance_high_watermark(3)
        assert log.last_stable_offset == 3

    def test_a_transaction_that_began_before_the_start_of_the_log_counts_from_there(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, 2))
        home.append(log, idempotent(0, 2, producer_id=9))
        log.delete_records(3)
        assert log.last_stable_offset == 3
        home.end(log, commits=True)
        assert log.last_stable_offset == 5

    def test_ended_transactions_are_forgotten_even_if_nobody_reads(self, home: Home) -> None:
        log = home.open()
        for number in range(20):
            home.append_verified(log, transactional(number))
            home.end(log, commits=True)
        assert len(log.producers.transactions.ended) <= 1

    def test_thousands_of_transactions_end_while_one_stays_open(self, home: Home) -> None:
        home.config = settings()
        log = home.open()
        home.append_verified(log, transactional(0, producer_id=1))
        for number in range(3000):
            home.append_verified(log, transactional(number, producer_id=2))
            home.end(log, 2, commits=True)
        assert len(log.producers.transactions.ended) <= 1001
        assert log.last_stable_offset == 0
        home.end(log, 1, commits=True)
        assert log.last_stable_offset == log.log_end_offset == 6002


class TestAborted:
    @pytest.fixture
    def log(self, home: Home) -> Log:
        """Small segments; producer 2 aborts in each, producer 1 has a transaction open over all of them."""
        home.config = settings(segment_bytes=300)
        return home.open_with_transactions()

    def entries(self, log: Log) -> list[AbortedTransaction]:
        return [entry for segment in log.segments for entry in segment.aborted]

    def expected(self) -> list[AbortedTransaction]:
        return [AbortedTransaction(2, at, at + 2, 0) for at in range(1, 41, 4) if (at - 1) // 4 % 3]

    def test_they_are_in_the_index_of_the_segment_with_the_marker(self, home: Home, log: Log) -> None:
        assert len(log.segments) > 4
        assert self.entries(log) == self.expected()
        for segment in log.segments:
            end_offset = log.end_of(segment)
            assert all(segment.base_offset <= entry.last_offset < end_offset for entry in segment.aborted)

    def test_the_file_is_in_the_format_of_kafka(self, home: Home, log: Log) -> None:
        first = home.files(".txnindex")[0].read_bytes()
        assert first[:34] == struct.pack(">hqqqq", 0, *self.expected()[0])
        assert (len(first) - 16) % 34 == 0

    def test_only_segments_with_aborted_transactions_have_a_file(self, home: Home, log: Log) -> None:
        with_entries = [segment.path.stem for segment in log.segments[:-1] if segment.aborted]
        assert [path.stem for path in home.files(".txnindex")] == with_entries
        assert 0 < len(with_entries) < len(log.segments) - 1

    def test_they_survive_a_clean_restart_and_a_crash(self, home: Home, log: Log) -> None:
        log = home.restart(log)
        assert self.entries(log) == self.expected()
        assert self.entries(home.open()) == self.expected()
        assert self.entries(home.open(recovery_point=log.log_end_offset)) == self.expected()
        assert self.entries(home.open(recovery_point=17)) == self.expected()

    def test_a_crash_after_a_restart_loses_none(self, home: Home, log: Log) -> None:
        log = home.restart(log)
        recovery_point = log.log_end_offset
        home.append_verified(log, transactional(20, producer_id=2))
        home.end(log, 2, commits=False)
        expected = [*self.expected(), AbortedTransaction(2, 41, 42, 0)]
        assert self.entries(home.open(recovery_point=recovery_point)) == expected
        assert self.entries(home.open(recovery_point=5)) == expected

    @pytest.mark.parametrize("damage", [None, b"", b"x" * 50, b"flip"])
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_a_file_that_is_missing_or_damaged_is_rebuilt(
        self, home: Home, log: Log, damage: bytes | None, is_clean: bool
    ) -> None:
        end_offset = log.log_end_offset
        flush(log)
        log.close()
        for path in home.files(".txnindex"):
            if damage is None:
                path.unlink()
            elif damage == b"flip":
                content = bytearray(path.read_bytes())
                content[9] ^= 1
                path.write_bytes(content)
            else:
                path.write_bytes(damage)
        assert self.entries(home.open(clean=is_clean, recovery_point=end_offset)) == self.expected()
        assert self.entries(home.open(clean=is_clean, recovery_point=end_offset)) == self.expected()

    def test_without_any_index_they_are_rebuilt_from_the_log(self, home: Home, log: Log) -> None:
        end_offset = log.log_end_offset
        flush(log)
        log.close()
        for suffix in (".index", ".timeindex", ".txnindex"):
            for path in home.files(suffix):
                path.unlink()
        assert self.entries(home.open(clean=True, recovery_point=end_offset)) == self.expected()

    def test_a_truncation_removes_those_it_cuts_off_and_opens_their_transactions(self, home: Home, log: Log) -> None:
        for offset in (40, 39, 23, 20, 7, 1):
            for path in log.truncate_to(offset, 0):
                path.unlink()
            assert self.entries(log) == [entry for entry in self.expected() if entry.last_offset < offset]
            assert log.producers.has_open_transaction(2, 0) == (offset % 4 == 3)
            reopened = home.open(recovery_point=offset)
            assert self.entries(reopened) == self.entries(log)

    def test_they_go_with_their_segment(self, home: Home, log: Log) -> None:
        home.end(log, 1, commits=True)
        log.delete_records(20)
        for path in log.drop_expired(home.clock.now_ms()):
            path.unlink()
        base_offset = log.segments[0].base_offset
        assert 10 < base_offset <= 20
        assert self.entries(log) == [entry for entry in self.expected() if entry.last_offset >= base_offset]
        assert [path.stem for path in home.files(".txnindex")] == [
            segment.path.stem for segment in log.segments[:-1] if segment.aborted
        ]

    @pytest.mark.parametrize("is_clean", [True, False])
    def test_a_file_that_could_not_be_written_is_rebuilt_at_the_next_start(self, home: Home, is_clean: bool) -> None:
        home.disk.suffixes = (".txnindex",)
        home.disk.free_bytes = 0
        home.config = settings(segment_bytes=300)
        log = home.open()
        for number in range(10):
            home.append_verified(log, transactional(number))
            home.end(log, commits=False)
        expected = self.entries(log)
        assert len(expected) == 10
        assert len(log.segments) > 4
        flush(log)
        home.disk.free_bytes = None
        if is_clean:
            log.close()
        for _ in range(2):
            log = home.open(clean=is_clean, recovery_point=20)
            assert [entry[:3] for entry in self.entries(log)] == [entry[:3] for entry in expected]

    def test_a_transaction_whose_marker_is_damaged_is_neither_committed_nor_aborted(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0))
        home.end(log, commits=False)
        home.append(log, idempotent(0, producer_id=9))
        flush(log)
        (path,) = home.files(".log")
        content = bytearray(path.read_bytes())
        content[-len(idempotent(0)) - 1] ^= 1  # the end of the marker
        path.write_bytes(content)
        log = home.open(recovery_point=3)
        assert (log.last_stable_offset, log.log_end_offset) == (0, 3)
        assert self.entries(log) == []
        assert present(log.producers.find(9)).last_sequence == 0


class TestRestart:
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_a_transaction_is_still_open(self, home: Home, is_clean: bool) -> None:
        """What is ongoing must not be known in memory only."""
        log = home.open()
        home.append(log, idempotent(0, 3, producer_id=9))
        home.append_verified(log, transactional(0, 2))
        log = home.restart(log) if is_clean else home.open()
        assert log.last_stable_offset == 3
        assert log.producers.has_open_transaction(7, 0)
        home.append(log, transactional(2))
        home.end(log, commits=False)
        assert list(log.segments[-1].aborted) == [AbortedTransaction(7, 3, 6, 7)]

    def test_the_epoch_of_the_coordinator_and_the_time_of_the_marker_are_still_known(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0))
        home.end(log, commits=True, coordinator_epoch=8)
        log = home.restart(log)
        entry = present(log.producers.find(7))
        assert (entry.coordinator_epoch, entry.last_timestamp) == (8, home.clock.now_ms())
        assert refused_marker(home, log, coordinator_epoch=7) is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_a_marker_that_was_not_replicated_still_holds_back_the_last_stable_offset(self, home: Home) -> None:
        log = home.open()
        home.append_verified(log, transactional(0, 2))
        home.end(log, commits=True, is_replicated=False)
        for is_clean in (True, False):
            if is_clean:
                flush(log)
                log.close()
            log = home.open(clean=is_clean)
            log.restore_high_watermark(2)
            assert log.last_stable_offset == 0
            log.advance_high_watermark(3)
            assert log.last_stable_offset == 3

    def test_a_transaction_whose_marker_an_unclean_election_has_lost_can_be_found_and_ended(self, home: Home) -> None:
        """The coordinator believes that it is complete, so nobody would end it: read_committed consumers would hang."""
        log = home.open()
        home.append(log, idempotent(0, producer_id=9))
        home.append_verified(log, transactional(0, 2, epoch=4))
        home.end(log, commits=True, producer_epoch=4, coordinator_epoch=6)
        log.truncate_to(3, 0)
        assert log.last_stable_offset == 1
        hanging = {each: entry for each, entry in log.producers if entry.transaction_start >= 0}
        assert [(each, entry.epoch, entry.transaction_start) for each, entry in hanging.items()] == [(7, 4, 1)]
        home.end(log, commits=False, producer_epoch=4, coordinator_epoch=6)
        assert log.last_stable_offset == log.log_end_offset == 4

    def test_a_follower_has_the_same_transactions(self, tmp_path: Path) -> None:
        leader, follower = Home(tmp_path / "a"), Home(tmp_path / "b")
        for home in (leader, follower):
            home.directory.parent.mkdir()
        source, copy = leader.open(), follower.open()
        leader.append_verified(source, transactional(0, 2, producer_id=1))
        leader.append_verified(source, transactional(0, 2, producer_id=2))
        leader.end(source, 2, commits=False)
        leader.append_verified(source, transactional(2, 1, producer_id=1))
        data = present(source.read(0, 1 << 20)).read()
        copy.append_as_follower(memoryview(bytearray(data)), 0, 0)
        copy.advance_high_watermark(source.log_end_offset)
        assert copy.last_stable_offset == source.last_stable_offset == 0
        assert list(copy.segments[-1].aborted) == list(source.segments[-1].aborted) == [AbortedTransaction(2, 2, 4, 0)]
        assert copy.producers.has_open_transaction(1, 0)
