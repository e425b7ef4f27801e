"""Looking up offsets by time, inside batches too, against a search through every record."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylog.errors import ErrorCode, KafkaError
from skylog.records import BatchHeader, Codec, Record, build_batch
from skylog.storage import Log
from tests.present import present
from tests.storage.logs import Home, a_batch, read_all

batches = st.lists(
    st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.sampled_from(list(Codec))),
    min_size=1,
    max_size=25,
)


def expected(times: list[int], start: int, timestamp: int) -> tuple[int, int] | None:
    return next(((time, o) for o, time in enumerate(times) if o >= start and time >= timestamp), None)


def found(log: Log, timestamp: int) -> tuple[int, int] | None:
    result = log.find_time(timestamp)
    return None if result is None else (result.timestamp, result.offset)


@given(batches, st.integers(0, 30), st.integers(0, 150))
@settings(max_examples=40, deadline=None)
def test_a_time_is_answered_by_the_first_record_at_or_after_it(
    rows: list[tuple[list[int], Codec]], interval: int, deleted: int
) -> None:
    with TemporaryDirectory() as folder:
        home = Home(Path(folder), segment_bytes=700, index_interval_bytes=interval * 10)
        log = home.open()
        times: list[int] = []
        for stamps, codec in rows:
            home.append(log, build_batch([Record(value=b"v" * 9, timestamp=time) for time in stamps], codec=codec))
            times += stamps
        log.delete_records(min(deleted, len(times)))
        for opening in (lambda: log, lambda: home.restart(log), lambda: home.open(log_start_offset=deleted)):
            opened = opening()
            for timestamp in range(62):
                assert found(opened, timestamp) == expected(times, log.log_start_offset, timestamp)
            if not log.log_start_offset:
                latest = opened.find_max_timestamp()
                assert (present(latest).timestamp, present(latest).offset) == (max(times), times.index(max(times)))


def test_the_answer_carries_the_leader_epoch_of_its_batch(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch(timestamp=10), epoch=1)
    home.append(log, a_batch(timestamp=20), epoch=4)
    assert (present(log.find_time(10)).leader_epoch, present(log.find_time(11)).leader_epoch) == (1, 4)


def test_an_empty_log_has_no_times(home: Home) -> None:
    log = home.open()
    assert log.find_time(0) is None
    assert log.find_max_timestamp() is None


def test_records_without_a_time_are_never_found(home: Home) -> None:
    log = home.open()
    home.append(log, a_batch(timestamp=-1))
    assert log.find_max_timestamp() is None
    assert log.find_time(0) is None


def test_log_append_time_is_used_for_the_search(tmp_path: Path) -> None:
    home = Home(tmp_path, message_timestamp_type="LogAppendTime")
    log = home.open()
    home.append(log, a_batch(2, timestamp=5))
    home.clock.advance_ms(100)
    home.append(log, a_batch(2, timestamp=5))
    assert present(log.find_time(home.clock.now_ms())).offset == 2
    assert present(log.find_time(6)).offset == 0


def test_a_batch_that_cannot_be_opened_is_answered_by_its_first_offset(tmp_path: Path) -> None:
    home = Home(tmp_path, max_message_bytes=100_000)
    log = home.open()
    home.append(log, a_batch(timestamp=10))
    bomb = build_batch([Record(value=bytes(20_000_000), timestamp=50)], codec=Codec.ZSTD)
    home.append(log, bomb)
    home.append(log, a_batch(timestamp=90))
    assert found(log, 40) == (50, 1)
    assert found(log, 60) == (90, 2)


def test_a_damaged_batch_before_the_result_is_reported_as_corrupt(home: Home) -> None:
    log = home.open()
    for number in range(3):
        home.append(log, a_batch(timestamp=number))
    size_bytes = BatchHeader.read(read_all(log)[0]).size_bytes
    log = home.restart(log)
    path = home.files(".log")[0]
    data = bytearray(path.read_bytes())
    data[2 * size_bytes - 1] ^= 1
    path.write_bytes(data)
    assert found(log, 0) == (0, 0)
    with pytest.raises(KafkaError) as caught:
        log.find_time(1)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
