"""Control batches: the bytes are Kafka's."""

from __future__ import annotations

import pytest

from skylog.records import InvalidBatchError, Marker, Record, build_batch, build_marker, check_batch, read_marker
from skylog.records.control import MARKER_BYTES
from skylog.records.retain import rebuild

FROM_KAFKA = bytes.fromhex(
    "0000000000000000" "00000042" "ffffffff" "02" "{crc}" "0030" "00000000" "0000018bcfe56800" "0000018bcfe56800"
    "0000000000003039" "0007" "ffffffff" "00000001" "20" "00" "00" "00" "08" "00000001" "0c" "000000000005" "00".format(
        crc="5f9f1a5c"
    )
)  # fmt: skip
"""MemoryRecords.withEndTransactionMarker(1700000000000, 12345, 7, EndTransactionMarker(COMMIT, 5))."""


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_is_read_back(commits: bool) -> None:
    batch = build_marker(12345, 7, commits=commits, coordinator_epoch=5, timestamp=1_700_000_000_000)
    header = check_batch(batch)
    assert (header.is_control, header.is_transactional, header.attributes) == (True, True, 0x30)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12345, 7, -1)
    assert (header.record_count, header.last_offset_delta, header.max_timestamp) == (1, 0, 1_700_000_000_000)
    assert read_marker(batch) == Marker(commits, 5)
    assert len(batch) == MARKER_BYTES


def test_the_bytes_of_a_marker_are_those_of_kafka() -> None:
    """Except for the CRC, which other tests compare with another implementation."""
    ours = build_marker(12345, 7, commits=True, coordinator_epoch=5, timestamp=1_700_000_000_000)
    assert ours[:17] + ours[21:] == FROM_KAFKA[:17] + FROM_KAFKA[21:]


def test_a_marker_that_compaction_has_emptied_says_nothing() -> None:
    batch = build_marker(1, 0, commits=True, coordinator_epoch=0, timestamp=0)
    assert read_marker(rebuild(check_batch(batch), b"", 0)) is None


def test_control_records_of_other_kinds_end_no_transaction() -> None:
    leader_change = Record(key=bytes.fromhex("00000002"), value=b"")
    assert read_marker(build_batch([leader_change], control=True)) is None


@pytest.mark.parametrize(
    "record",
    [
        Record(key=None, value=b""),
        Record(key=b"\0\0\0", value=b""),
        Record(key=b"\xff\xff\0\0", value=bytes(6)),
        Record(key=bytes(4), value=None),
        Record(key=bytes(4), value=bytes(5)),
        Record(key=bytes(4), value=b"\xff\xff\0\0\0\0"),
    ],
)
def test_a_damaged_marker_is_refused(record: Record) -> None:
    with pytest.raises(InvalidBatchError):
        read_marker(build_batch([record], control=True))


def test_a_marker_of_a_later_version_is_read_like_the_first() -> None:
    record = Record(key=bytes.fromhex("00010000"), value=bytes.fromhex("000100000009ff"))
    assert read_marker(build_batch([record], control=True)) == Marker(False, 9)
