"""read_committed gives the records of committed transactions and of no transaction, from the batches of the log."""

from __future__ import annotations

from struct import Struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.model import TopicPartition
from skylog.protocol.fetch import AbortedTransaction
from skylog.records import BatchHeader, Codec, Record, build_batch
from skylog.spark.reading.batches import cut
from skylog.spark.reading.fetcher import FetchSettings
from skylog.spark.reading.range_reader import read_batches
from skylog.spark.reading.ranges import ReadRange
from skylog.spark.reading.transactions import committed_batches
from skylog.spark.schema import arrow_schema, record_schema
from tests.spark.reading.scripted_broker import TOPIC, Aborted, ScriptedBroker

SCHEMA = arrow_schema(record_schema(with_headers=False))
MARKER = Struct(">hh")
PLAIN, ABORT, COMMIT = -1, 0, 1


class CraftedLog:
    """Batches as transactions leave them, the aborted transactions, and what a committed read must give."""

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.aborted: list[Aborted] = []
        self.committed: list[int] = []
        self.end_offset = 0
        self._open: dict[int, list[int]] = {}

    def data(self, producer: int, count: int = 2, codec: Codec = Codec.NONE) -> None:
        """A batch of a transaction, or of none if the producer is PLAIN."""
        offsets = range(self.end_offset, self.end_offset + count)
        records = [Record(b"%d" % offset) for offset in offsets]
        is_transactional = producer != PLAIN
        self._add(build_batch(records, codec=codec, producer_id=producer, transactional=is_transactional), count)
        if is_transactional:
            self._open.setdefault(producer, []).extend(offsets)
        else:
            self.committed += offsets

    def end(self, producer: int, kind: int) -> None:
        """The marker that ends a producer's transaction."""
        if not (offsets := self._open.pop(producer, [])):
            return
        if kind == COMMIT:
            self.committed += offsets
        else:
            self.aborted.append(Aborted(producer, offsets[0], self.end_offset))
        record = Record(b"\0" * 6, MARKER.pack(0, kind))
        self._add(build_batch([record], producer_id=producer, transactional=True, control=True), 1)

    def end_all(self) -> None:
        for producer in list(self._open):
            self.end(producer, COMMIT)

    def _add(self, batch: bytearray, count: int) -> None:
        header = BatchHeader.read(batch)._replace(base_offset=self.end_offset)  # outside the CRC
        batch[: len(header.pack())] = header.pack()
        self.batches.append(batch)
        self.end_offset += count

    def read(self, start_offset: int = 0, *, read_committed: bool = True, per_response: int = 2) -> list[int]:
        with ScriptedBroker(self.batches, self.aborted, per_response) as broker:
            chosen = FetchSettings(broker.bootstrap, patience_s=5, read_committed=read_committed)
            part = ReadRange(TOPIC, 0, start_offset, self.end_offset)
            found = [offset for batch in read_batches(chosen, part, SCHEMA) for offset in batch["offset"].to_pylist()]
            assert broker.isolation_levels == {int(read_committed)}
        return found


def mixed() -> CraftedLog:
    """Producer 7 aborts and then commits, while 8 commits and others use no transactions."""
    log = CraftedLog()
    log.data(7)  # 0, 1
    log.data(8)  # 2, 3
    log.data(PLAIN)  # 4, 5
    log.data(7)  # 6, 7
    log.end(7, ABORT)  # 8
    log.data(7)  # 9, 10
    log.end(8, COMMIT)  # 11
    log.end(7, COMMIT)  # 12
    return log


@pytest.mark.parametrize("per_response", [1, 2, 3, 100])
def test_aborted_records_are_left_out_wherever_a_response_ends(per_response: int) -> None:
    assert mixed().read(per_response=per_response) == [2, 3, 4, 5, 9, 10]


def test_a_read_that_begins_inside_an_aborted_transaction_leaves_out_the_rest_of_it() -> None:
    assert mixed().read(3) == [3, 4, 5, 9, 10]
    assert mixed().read(7) == [9, 10]


def test_without_read_committed_only_markers_are_left_out() -> None:
    assert mixed().read(read_committed=False) == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]


def test_a_log_of_nothing_but_aborted_records_gives_none() -> None:
    log = CraftedLog()
    log.data(7, codec=Codec.ZSTD)
    log.end(7, ABORT)
    assert log.read() == []


def test_a_marker_that_compaction_has_emptied_ends_nothing() -> None:
    log = CraftedLog()
    log.data(7)
    log.batches.append(
        build_batch([], base_offset=2, producer_id=7, transactional=True, control=True, last_offset_delta=0)
    )
    log.end_offset = 3
    log.data(7)
    log.end(7, ABORT)
    data = memoryview(b"".join(log.batches))
    headers, positions = cut(data, TopicPartition(TOPIC, 0))
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    assert committed_batches(data, headers, positions, aborted).tolist() == [False, True, False, True]


def test_no_aborted_transaction_keeps_every_batch() -> None:
    data = memoryview(b"".join(mixed().batches))
    headers, positions = cut(data, TopicPartition(TOPIC, 0))
    assert np.all(committed_batches(data, headers, positions, []))


STEPS = st.lists(
    st.tuples(st.sampled_from([PLAIN, 7, 8, 9]), st.sampled_from([None, None, ABORT, COMMIT]), st.integers(1, 3)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, start=st.integers(0, 20), per_response=st.integers(1, 5))
def test_any_mix_of_transactions_gives_what_was_committed(
    steps: list[tuple[int, int | None, int]], start: int, per_response: int
) -> None:
    log = CraftedLog()
    log.data(PLAIN)
    for producer, ending, count in steps:
        if ending is None or producer == PLAIN:
            log.data(producer, count)
        else:
            log.end(producer, ending)
    log.end_all()
    start = min(start, log.end_offset - 1)
    assert log.read(start, per_response=per_response) == sorted(offset for offset in log.committed if offset >= start)
