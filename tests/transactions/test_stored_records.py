"""The records of the transaction topic: Kafka's bytes, and back."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.model import TopicPartition
from skylog.transactions import Producer, TransactionEntry, Transactions, TransactionState
from skylog.transactions.entry import LAST_EPOCH
from skylog.transactions.stored_records import (
    UnknownTransactionRecordError,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.text("abc", min_size=1, max_size=3), st.integers(0, 9)), max_size=5
)


def test_the_bytes_are_those_of_kafka() -> None:
    """Written by Kafka's schema by hand: version, then the fields of TransactionLogKey and TransactionLogValue 0."""
    entry = TransactionEntry(
        Producer(5, 2),
        60_000,
        TransactionState.ONGOING,
        frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        update_ms=8,
        start_ms=7,
    )
    assert encode_key("id") == bytes.fromhex("000000026964")
    assert encode_value(entry) == bytes.fromhex(
        "0000" "0000000000000005" "0002" "0000ea60" "01"
        "00000001" "0001" "74" "00000002" "00000000" "00000001"
        "0000000000000008" "0000000000000007"
    )  # fmt: skip


def test_a_value_without_partitions_has_null() -> None:
    value = encode_value(TransactionEntry(Producer(5, 0), 1, update_ms=3))
    assert value == bytes.fromhex("0000 0000000000000005 0000 00000001 00 ffffffff 0000000000000003 ffffffffffffffff")


@given(
    st.integers(0, 2**62),
    st.integers(1, LAST_EPOCH),
    st.integers(1, 2**31 - 1),
    st.sampled_from(TransactionState),
    PARTITIONS,
    st.integers(-1, 2**50),
)
def test_an_entry_comes_back_as_it_was(
    producer_id: int,
    epoch: int,
    timeout_ms: int,
    state: TransactionState,
    partitions: frozenset[TopicPartition],
    time_ms: int,
) -> None:
    producer = Producer(producer_id, epoch)
    for previous in (None, Producer(producer_id, epoch - 1), Producer(producer_id + 1, LAST_EPOCH)):
        entry = TransactionEntry(producer, timeout_ms, state, partitions, time_ms, time_ms - 1, previous)
        assert decode_value(encode_value(entry)) == entry
        assert encode_value(entry)[:2] == (b"\0\0" if previous is None else b"\0\1")


def test_tagged_fields_of_later_versions_of_kafka_are_skipped() -> None:
    entry = TransactionEntry(Producer(5, 1), 1, previous=Producer(5, 0))
    assert decode_value(encode_value(entry)[:-11] + bytes.fromhex("02 00 08 0000000000000005 03 02 0007")) == entry


@pytest.mark.parametrize("data", [b"\0\2", b"\xff\xff"])
def test_unknown_versions_are_refused(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        with pytest.raises(UnknownTransactionRecordError):
            decode(data + bytes(64))


def test_an_unknown_state_is_refused() -> None:
    value = bytearray(encode_value(TransactionEntry(Producer(5, 0), 1)))
    value[16] = 7
    with pytest.raises(UnknownTransactionRecordError):
        decode_value(bytes(value))


def test_unreadable_records_are_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    transactions = Transactions()
    with caplog.at_level(logging.WARNING):
        transactions.replay(b"", None)
        transactions.replay(b"\0\7", None)
        transactions.replay(encode_key("t"), b"\0\0short")
    assert len(caplog.records) == 3
    assert len(transactions) == 0


def test_a_tombstone_removes_an_id() -> None:
    transactions = Transactions()
    key, value = transactions.record("t", TransactionEntry(Producer(5, 0), 1))
    transactions.replay(key, value)
    assert [each.transactional_id for each in transactions.all()] == ["t"]
    transactions.replay(*transactions.record("t", None))
    assert transactions.find("t") is None
