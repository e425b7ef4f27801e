"""The batch header and the checks that need nothing but the bytes."""

from __future__ import annotations

from struct import pack_into

import pytest

from skylog.records import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    InvalidBatchError,
    Record,
    build_batch,
    check_batch,
    iterate_batches,
    read_records,
    stamp_append_time,
    stamp_offset,
)

BROKER_FIELDS = frozenset(range(8)) | frozenset(range(12, 16))  # base offset and leader epoch, outside the CRC


def a_batch(**fields: int) -> bytearray:
    records = [Record(value=b"value-%d" % i, key=b"key", timestamp=1000 + i) for i in range(3)]
    return build_batch(records, **fields)  # type: ignore[arg-type]  # the tests pass integers only


def test_the_header_has_the_layout_of_the_format() -> None:
    batch = a_batch(base_offset=0x0102030405060708, leader_epoch=9, producer_id=77, producer_epoch=5, base_sequence=11)
    assert batch[0:8] == bytes([1, 2, 3, 4, 5, 6, 7, 8])
    assert int.from_bytes(batch[8:12], "big") == len(batch) - 12
    assert int.from_bytes(batch[12:16], "big") == 9
    assert batch[16] == 2
    assert int.from_bytes(batch[21:23], "big") == 0
    assert int.from_bytes(batch[23:27], "big") == 2
    assert int.from_bytes(batch[27:35], "big") == 1000
    assert int.from_bytes(batch[35:43], "big") == 1002
    assert int.from_bytes(batch[43:51], "big") == 77
    assert int.from_bytes(batch[51:53], "big") == 5
    assert int.from_bytes(batch[53:57], "big") == 11
    assert int.from_bytes(batch[57:61], "big") == 3


@pytest.mark.parametrize("codec", list(Codec))
def test_every_flipped_bit_is_found_except_in_the_two_fields_of_the_broker(codec: Codec) -> None:
    batch = a_batch(codec=codec)
    check_batch(batch)
    for index in range(len(batch)):
        for bit in range(8):
            batch[index] ^= 1 << bit
            if index in BROKER_FIELDS:
                check_batch(batch)
            else:
                with pytest.raises(InvalidBatchError):
                    check_batch(batch)
            batch[index] ^= 1 << bit


def test_a_batch_that_is_cut_anywhere_is_found() -> None:
    batch = a_batch()
    for length in range(len(batch)):
        with pytest.raises(InvalidBatchError) as caught:
            check_batch(batch[:length])
        assert caught.value.corrupt


def with_field(batch: bytearray, form: str, position: int, value: int) -> bytearray:
    """The batch with one field replaced and a valid CRC: wrong, but not damaged."""
    from crc32c import crc32c

    pack_into(form, batch, position, value)
    pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


@pytest.mark.parametrize("count", [-1, -(2**31), 4, 2**31 - 1])
def test_a_record_count_that_does_not_fit_the_offsets_is_refused(count: int) -> None:
    with pytest.raises(InvalidBatchError, match="records"):
        check_batch(with_field(a_batch(), ">i", 57, count))


def test_more_records_than_the_bytes_can_hold_are_refused() -> None:
    batch = with_field(with_field(a_batch(), ">i", 23, 10**9 - 1), ">i", 57, 10**9)
    with pytest.raises(InvalidBatchError, match="cannot fit"):
        check_batch(batch)


@pytest.mark.parametrize("delta", [-1, -(2**31)])
def test_a_batch_without_any_offset_is_refused(delta: int) -> None:
    batch = with_field(with_field(a_batch(), ">i", 57, 0), ">i", 23, delta)
    with pytest.raises(InvalidBatchError):
        check_batch(batch)


def test_an_emptied_batch_that_keeps_its_offsets_is_sound() -> None:
    header = check_batch(build_batch([], base_offset=7, last_offset_delta=4))
    assert (header.base_offset, header.end_offset, header.record_count) == (7, 12, 0)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    batch = a_batch()
    pack_into(">i", batch, 8, length)
    with pytest.raises(InvalidBatchError):
        check_batch(batch)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_magic_is_nonsense_rather_than_damage(magic: int) -> None:
    batch = a_batch()
    batch[16] = magic
    with pytest.raises(InvalidBatchError, match="magic") as caught:
        check_batch(batch)
    assert not caught.value.corrupt


def test_an_unknown_codec_is_refused() -> None:
    batch = with_field(a_batch(), ">h", 21, 5)
    with pytest.raises(InvalidBatchError, match="codec"):
        check_batch(batch)
    with pytest.raises(InvalidBatchError, match="codec"):
        list(read_records(batch))


def test_a_producer_must_send_a_sequence_number() -> None:
    with pytest.raises(InvalidBatchError, match="sequence"):
        check_batch(a_batch(producer_id=1, producer_epoch=0, base_sequence=-1))


def test_the_offset_is_stamped_without_touching_anything_else() -> None:
    batch = a_batch(leader_epoch=1)
    before = bytes(batch)
    stamp_offset(batch, 2**40, 12)
    header = check_batch(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 12)
    assert batch[8:12] == before[8:12]
    assert batch[16:] == before[16:]


def test_the_append_time_is_stamped_with_a_right_crc_and_read_as_every_records_time() -> None:
    batch = a_batch()
    stamp_append_time(batch, 5_000_000, 0, len(batch))
    header = check_batch(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == 5_000_000
    assert {record.timestamp for record in read_records(batch)} == {5_000_000}


def test_sequences_wrap_at_two_to_the_thirty_first() -> None:
    header = BatchHeader.read(a_batch(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_iterating_gives_whole_batches_only() -> None:
    first, second = bytes(a_batch()), bytes(a_batch(base_offset=3))
    data = first + second
    assert [position for position, _ in iterate_batches(data)] == [0, len(first)]
    assert [position for position, _ in iterate_batches(data[:-1])] == [0]
    assert list(iterate_batches(data[: HEADER_BYTES - 1])) == []


def test_iterating_over_a_length_of_nothing_ends() -> None:
    batch = a_batch()
    pack_into(">i", batch, 8, -12)
    assert list(iterate_batches(batch)) == []
